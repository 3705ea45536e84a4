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

/// Words in the names of parts for pictures and sound.
const SENSES: [&str; 6] = ["vision", "visual", "image", "video", "audio", "speech"];

/// The part that `text_config` names; without one, the only part that says how it rotates where the config itself
/// says nothing of that. Parts for pictures and sound are none.
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
        [(_, part)] => part.clone(),
        _ => config,
    }
}

/// Why a config tells nothing about rotations; `None` where it has a key that may.
pub(super) fn says_nothing(config: &Map<String, Value>) -> Option<String> {
    let mut parts = vec![];
    find(config, &mut parts);
    if let [(first, _), (second, _), ..] = parts[..] {
        return Some(format!(
            "several parts of it have rotations ({first}, {second}); give that of the language model alone"
        ));
    }
    let is_told = rotates(config) || OTHERS.iter().any(|key| config.contains_key(*key));
    (!is_told).then(|| {
        "it has no key of a model with rotations; give the config.json of the language model"
            .to_owned()
    })
}

fn rotates(config: &Map<String, Value>) -> bool {
    let keys = SPELLINGS.iter().chain(&THETAS).chain(&LOCAL_THETAS);
    let mut keys = keys.chain(&["partial_rotary_factor", "rotary_pct", "rotary_dim"]);
    keys.any(|key| config.get(*key).is_some_and(|value| !value.is_null()))
}

/// The outermost parts that say how they rotate, with their names; none of a config that says it itself.
fn find<'a>(config: &'a Map<String, Value>, parts: &mut Vec<(&'a str, &'a Map<String, Value>)>) {
    if rotates(config) {
        return;
    }
    // Beside a part for text, others are for pictures and sound.
    let has_text = config.get("text_config").is_some_and(Value::is_object);
    for (name, value) in config {
        let is_other = match has_text {
            true => name != "text_config",
            false => SENSES.iter().any(|sense| name.contains(sense)),
        };
        let Some(part) = value.as_object().filter(|_| !is_other) else {
            continue;
        };
        match rotates(part) {
            true => parts.push((name, part)),
            false => find(part, parts),
        }
    }
}
