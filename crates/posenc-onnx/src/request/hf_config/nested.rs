//! The part of a config that is about the language model.

use serde_json::{Map, Value};

use super::{LOCAL_THETAS, SPELLINGS, THETAS};

/// Keys of the model around rotations.
const OTHERS: [&str; 10] = [
    "num_hidden_layers",
    "n_layer",
    "num_attention_heads",
    "n_head",
    "hidden_size",
    "n_embd",
    "head_dim",
    "max_position_embeddings",
    "alibi",
    "position_embedding_type",
];

/// The part that `text_config` names; without one, the only part that says how it rotates where the config itself
/// says nothing of that.
pub(super) fn text_part(mut config: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::Object(text)) = config.remove("text_config") {
        return text;
    }
    if rotates(&config) {
        return config;
    }
    let mut parts = vec![];
    find(&config, &mut parts);
    match parts[..] {
        [part] => part.clone(),
        _ => config,
    }
}

/// Whether a config has no key that tells anything about rotations.
pub(super) fn says_nothing(config: &Map<String, Value>) -> bool {
    !rotates(config) && !OTHERS.iter().any(|key| config.contains_key(*key))
}

fn rotates(config: &Map<String, Value>) -> bool {
    let keys = SPELLINGS.iter().chain(&THETAS).chain(&LOCAL_THETAS);
    let mut keys = keys.chain(&["partial_rotary_factor", "rotary_pct", "rotary_dim"]);
    keys.any(|key| config.get(*key).is_some_and(|value| !value.is_null()))
}

/// The outermost parts that say how they rotate.
fn find<'a>(config: &'a Map<String, Value>, parts: &mut Vec<&'a Map<String, Value>>) {
    let nested = config.get("text_config").and_then(Value::as_object);
    let all = || config.values().filter_map(Value::as_object);
    // Beside a part for text, others are for pictures and sound.
    let inner: Vec<&Map<String, Value>> = nested.map_or_else(|| all().collect(), |text| vec![text]);
    for part in inner {
        match rotates(part) {
            true => parts.push(part),
            false => find(part, parts),
        }
    }
}
