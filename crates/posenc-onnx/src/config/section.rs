//! The keys of a configuration that are a rotary embedding.

use posenc_encodings::hf::Writer;
use posenc_encodings::laws::EVERYWHERE;
use serde_json::{Map, Value, json};

use crate::error::Refusal;
use crate::request::hf_config::{DEFAULT_THETA, LOCAL_THETAS, LayerKind, SPELLINGS, THETAS};

/// The scaling dict of version 4 of transformers.
const SCALING: &str = SPELLINGS[0];

/// The scaling dict of version 5.
const PARAMETERS: &str = SPELLINGS[1];

/// The keys of the type within the dict.
const TYPES: [&str; 2] = [EVERYWHERE[0], EVERYWHERE[1]];

/// Keys of the dict that are no parameters of a law.
const OTHERS: [&str; 2] = [EVERYWHERE[2], EVERYWHERE[3]];

/// The key of the kind of a model.
const MODEL: &str = "model_type";

/// Models of which transformers takes no scaling but `longrope`.
const LIKE_PHI3: [&str; 2] = ["phi3", "phi4_multimodal"];

/// A difference of θ that the precision of a graph explains.
const THETA_TOLERANCE: f64 = 1e-6;

/// The name of the dict that a config has, or is to get.
pub(super) fn name(config: &Map<String, Value>) -> &'static str {
    match (is_said(config, SCALING), is_said(config, PARAMETERS)) {
        (_, true) => PARAMETERS,
        (false, false) if config.contains_key(PARAMETERS) => PARAMETERS,
        _ => SCALING,
    }
}

/// Whether there is a dict that says something.
fn is_said(config: &Map<String, Value>, name: &str) -> bool {
    let dict = config.get(name).and_then(Value::as_object);
    dict.is_some_and(|dict| !dict.is_empty())
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

/// Whether layers of two kinds are read from the same place.
pub(super) fn is_shared(config: &Map<String, Value>, a: &LayerKind, b: &LayerKind) -> bool {
    let [own, other] = [a, b].map(|kind| local(config, kind));
    own == other && (a == b || own.is_some() || !is_per_kind(config))
}

/// Refuses a dict that was written and that transformers would not take: that of Phi-3 has to be
/// `longrope` and, in version 4, have no key but its type and its two lists.
///
/// # Errors
/// Such a dict.
pub(super) fn refuse_of_phi3(config: &Map<String, Value>) -> Result<(), Refusal> {
    if !is_like_phi3(config) {
        return Ok(());
    }
    for name in SPELLINGS {
        let Some(Value::Object(dict)) = config.get(name).filter(|_| is_said(config, name)) else {
            continue;
        };
        let mut types = TYPES.iter().filter_map(|key| dict.get(*key)?.as_str());
        let is_longrope = types.all(|word| word == "longrope");
        let is_taken = match name {
            SCALING => is_longrope && dict.len() == 3,
            _ => {
                is_longrope
                    || TYPES
                        .iter()
                        .any(|key| dict.get(*key) == Some(&json!("default")))
            }
        };
        if !is_taken {
            let model = config
                .get(MODEL)
                .and_then(Value::as_str)
                .unwrap_or_default();
            let why = format!(
                "transformers would refuse the config: that of {model} takes no other {name} than longrope \
                 with short_factor and long_factor"
            );
            return Err(Refusal::invalid(why));
        }
    }
    Ok(())
}

fn is_like_phi3(config: &Map<String, Value>) -> bool {
    let model = config.get(MODEL).and_then(Value::as_str);
    model.is_some_and(|model| LIKE_PHI3.contains(&model))
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
    let is_per_kind = is_per_kind(config);
    let name = name(config);
    let outer = config.get(name).cloned().unwrap_or_default();
    let inner = match is_per_kind {
        true => outer.get(kind.key()).cloned().unwrap_or_default(),
        false => outer.clone(),
    };
    let dict = dict(config, &inner, (law, is_per_kind));
    let new = match outer {
        Value::Object(mut all) if is_per_kind => {
            all.insert(kind.key().to_owned(), dict);
            Value::Object(all)
        }
        _ => dict,
    };
    // A config of both versions says the same twice, or else it is not read.
    for other in SPELLINGS {
        if other != name && is_said(config, other) {
            config.insert(other.to_owned(), new.clone());
        }
    }
    if config.contains_key(name) || !new.is_null() {
        config.insert(name.to_owned(), new);
    }
}

/// The dict of a law in place of another one.
fn dict(config: &mut Map<String, Value>, old: &Value, (law, is_of_kind): (&Writer, bool)) -> Value {
    // In some forms, plain RoPE has a dict too.
    let is_needed = is_of_kind || is_parameters(config);
    let mut dict = old.as_object().cloned().unwrap_or_default();
    let is_kept = |key: &str| TYPES.contains(&key) || OTHERS.contains(&key);
    dict.retain(|key, _| is_kept(key) || law.section.contains_key(key));
    write_theta((config, &mut dict), law.theta, (is_of_kind, is_needed));
    let is_empty = OTHERS.iter().all(|key| !dict.contains_key(*key));
    if law.rope_type.is_none() && is_empty && !is_needed {
        return Value::Null;
    }
    let word = law.rope_type.unwrap_or("default");
    let mut types: Vec<&str> = TYPES.into_iter().collect();
    types.retain(|key| dict.contains_key(*key));
    if types.is_empty() {
        // Version 4 looks for the older word in the config of Phi-3.
        let is_older = is_like_phi3(config) && !is_parameters(config);
        types.push(TYPES[usize::from(is_older)]);
    }
    for key in types {
        set(&mut dict, key, word.into());
    }
    for (key, value) in &law.section {
        set(&mut dict, key, value.clone());
    }
    Value::Object(dict)
}

/// Writes the base wherever it is said, in the dict and outside; where it is not, at the place where it is
/// read.
fn write_theta(
    (config, dict): (&mut Map<String, Value>, &mut Map<String, Value>),
    theta: f64,
    (is_of_kind, is_needed): (bool, bool),
) {
    let is_set = |map: &Map<String, Value>, key: &str| map.get(key).is_some_and(|v| !v.is_null());
    let is_inside = is_set(dict, THETAS[0]);
    if is_inside {
        set(dict, THETAS[0], theta.into());
    }
    let mut keys: Vec<&str> = THETAS.into_iter().collect();
    // Beside a base for each kind of layer, one outside is of no kind.
    keys.retain(|key| is_set(config, key) && !(is_inside && is_of_kind));
    for key in &keys {
        set(config, key, theta.into());
    }
    if is_inside || !keys.is_empty() {
        return;
    }
    match THETAS.into_iter().find(|key| config.contains_key(*key)) {
        Some(key) => set(config, key, theta.into()),
        None if is_needed => set(dict, THETAS[0], theta.into()),
        // What a config leaves out is the default.
        None if is_near(theta, DEFAULT_THETA) => {}
        None => set(config, THETAS[0], theta.into()),
    }
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
