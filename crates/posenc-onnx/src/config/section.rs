//! The keys of a configuration that are a rotary embedding.

use posenc_encodings::hf::Writer;
use serde_json::{Map, Value};

use crate::request::hf_config::LayerKind;

/// The two names of the scaling dict: that of version 4 of transformers, and that of version 5.
const SCALING: &str = "rope_scaling";
const PARAMETERS: &str = "rope_parameters";

/// The keys of the base θ, the first of which counts.
const THETAS: [&str; 3] = ["rope_theta", "rotary_emb_base", "global_rope_theta"];

/// The keys of the base of layers with a window, which are never scaled.
const LOCAL_THETAS: [&str; 2] = ["rope_local_base_freq", "local_rope_theta"];

/// The keys of the type within the dict.
const TYPES: [&str; 2] = ["rope_type", "type"];

/// Keys of the dict that are no parameters of a law.
const OTHERS: [&str; 2] = ["rope_theta", "partial_rotary_factor"];

/// The base where a config has none.
const DEFAULT_THETA: f64 = 10_000.0;

/// A difference of θ that the precision of a graph explains.
const THETA_TOLERANCE: f64 = 1e-6;

/// The name of the dict that a config has, or is to get.
pub(super) fn name(config: &Map<String, Value>) -> &'static str {
    let is_set = |key: &str| config.get(key).is_some_and(|value| !value.is_null());
    match (is_set(SCALING), is_set(PARAMETERS)) {
        (_, true) => PARAMETERS,
        (false, false) if config.contains_key(PARAMETERS) => PARAMETERS,
        _ => SCALING,
    }
}

/// Whether the dict is the `rope_parameters` of version 5 of transformers.
pub(super) fn is_parameters(config: &Map<String, Value>) -> bool {
    name(config) == PARAMETERS
}

/// The key of the base that layers of a kind have of their own.
pub(super) fn local(config: &Map<String, Value>, kind: &LayerKind) -> Option<&'static str> {
    let is_set = |key: &&str| config.get(*key).is_some_and(|value| !value.is_null());
    let mut keys = LOCAL_THETAS.into_iter();
    keys.find(|key| *kind == LayerKind::Sliding && is_set(key))
}

/// Whether layers of different kinds have dicts of their own.
pub(super) fn is_per_kind(config: &Map<String, Value>) -> bool {
    let Some(Value::Object(dict)) = config.get(name(config)) else {
        return false;
    };
    let mut entries = dict.values();
    dict.values().any(Value::is_object) && entries.all(|entry| entry.is_object() || entry.is_null())
}

/// Writes the base of layers that have one of their own.
pub(super) fn write_local(config: &mut Map<String, Value>, key: &str, theta: f64) {
    set(config, key, theta.into());
}

/// Writes a law for layers of a kind.
pub(super) fn write(config: &mut Map<String, Value>, kind: &LayerKind, law: &Writer) {
    for (key, value) in &law.outside {
        set(config, key, value.clone());
    }
    let per_kind = is_per_kind(config);
    let mut names = vec![name(config)];
    // A config of both versions says the same twice.
    if [SCALING, PARAMETERS]
        .iter()
        .all(|key| config.get(*key).is_some_and(Value::is_object))
    {
        names = vec![SCALING, PARAMETERS];
    }
    for name in names {
        let outer = config.get(name).cloned().unwrap_or_default();
        let inner = match per_kind {
            true => outer.get(kind.key()).cloned().unwrap_or_default(),
            false => outer.clone(),
        };
        let new = dict(config, &inner, (law, name == PARAMETERS || per_kind));
        let new = match outer {
            Value::Object(mut all) if per_kind => {
                all.insert(kind.key().to_owned(), new);
                Value::Object(all)
            }
            _ => new,
        };
        if config.contains_key(name) || !new.is_null() {
            config.insert(name.to_owned(), new);
        }
    }
}

/// The dict of a law in place of another one. The base is written where it is read: in the dict or
/// outside. `keeps` says that plain RoPE has a dict too.
fn dict(config: &mut Map<String, Value>, old: &Value, (law, keeps): (&Writer, bool)) -> Value {
    let mut dict = old.as_object().cloned().unwrap_or_default();
    let is_kept = |key: &str| TYPES.contains(&key) || OTHERS.contains(&key);
    dict.retain(|key, _| is_kept(key) || law.section.contains_key(key));
    let has_theta = dict.get(THETAS[0]).is_some_and(|theta| !theta.is_null());
    let outside = THETAS.into_iter().find(|key| config.contains_key(*key));
    match outside {
        _ if has_theta => set(&mut dict, THETAS[0], law.theta.into()),
        Some(key) => set(config, key, law.theta.into()),
        None if keeps => set(&mut dict, THETAS[0], law.theta.into()),
        // What a config leaves out is the default.
        None if is_near(law.theta, DEFAULT_THETA) => {}
        None => set(config, THETAS[0], law.theta.into()),
    }
    let is_empty = OTHERS.iter().all(|key| !dict.contains_key(*key));
    if law.rope_type.is_none() && is_empty && !keeps {
        return Value::Null;
    }
    let word = law.rope_type.unwrap_or("default");
    let mut types: Vec<&str> = TYPES.into_iter().collect();
    types.retain(|key| dict.contains_key(*key));
    if types.is_empty() {
        types.push(TYPES[0]);
    }
    for key in types {
        set(&mut dict, key, word.into());
    }
    for (key, value) in &law.section {
        set(&mut dict, key, value.clone());
    }
    Value::Object(dict)
}

/// Whether two values of θ are the same.
fn is_near(old: f64, new: f64) -> bool {
    (old - new).abs() <= THETA_TOLERANCE * new.abs()
}

/// Sets a key, unless it has that value already in another spelling.
fn set(map: &mut Map<String, Value>, key: &str, value: Value) {
    let old = map.get(key);
    let is_same = match (old.and_then(Value::as_f64), value.as_f64()) {
        (Some(old), Some(new)) if THETAS.contains(&key) || LOCAL_THETAS.contains(&key) => {
            is_near(old, new)
        }
        (Some(old), Some(new)) => old == new,
        _ => old == Some(&value),
    };
    if is_same {
        return;
    }
    let is_whole = old.is_some_and(|old| old.is_u64() || old.is_i64());
    let whole = value
        .as_f64()
        .filter(|x| x.fract() == 0.0 && x.abs() < 1e15);
    let value = match whole {
        Some(x) if is_whole => Value::from(x as i64),
        _ => value,
    };
    map.insert(key.to_owned(), value);
}
