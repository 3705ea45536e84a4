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

/// Widths, which a config may copy from one of its parts.
const COPIED: [&str; 2] = ["hidden_size", "n_embd"];

/// Words in the names of parts for pictures and sound.
const SENSES: [&str; 6] = ["vision", "visual", "image", "video", "audio", "speech"];

/// Keys of parts for pictures and sound, by which other names of these are known.
const SENSED: [&str; 4] = ["image_size", "patch_size", "num_mel_bins", "sampling_rate"];

/// The name of a whole config beside its parts.
const AROUND: &str = "the config around it";

const GIVE: &str = "give the config of the language model alone";

/// The part about the language model, and why it may be another.
pub(super) struct Part {
    pub(super) text: Map<String, Value>,
    pub(super) doubt: Option<String>,
}

/// The part that `text_config` names; without one, the only part that says how it rotates where the config itself
/// says nothing of that, and no other describes a model. Parts for pictures and sound are none.
pub(super) fn text_part(mut config: Map<String, Value>) -> Part {
    if let Some(Value::Object(text)) = config.remove("text_config") {
        let key = (!rotates(&text)).then(|| rotation(&config)).flatten();
        let doubt = key.map(|key| {
            format!(
                "its text_config has no key of rotations, and {key} is around it; move that into text_config, or \
                 {GIVE}"
            )
        });
        return Part { text, doubt };
    }
    let mut parts = Parts::default();
    parts.find(AROUND, &config);
    let doubt = parts.doubt();
    let text = match parts.rotating[..] {
        [(_, part)] if doubt.is_none() => part.clone(),
        _ => config,
    };
    Part { text, doubt }
}

/// Why a config tells nothing about rotations; `None` where it has a key that may.
pub(super) fn says_nothing(config: &Map<String, Value>) -> Option<String> {
    let mut parts = Parts::default();
    parts.find(AROUND, config);
    if let Some(why) = parts.doubt() {
        return Some(why);
    }
    let is_told = rotates(config) || describes(config);
    (!is_told).then(|| {
        "it has no key of a model with rotations; give the config.json of the language model"
            .to_owned()
    })
}

/// Whether a config has keys of a model around rotations.
fn describes(config: &Map<String, Value>) -> bool {
    OTHERS.iter().any(|key| has(config, key))
}

fn has(config: &Map<String, Value>, key: &str) -> bool {
    config.get(key).is_some_and(|value| !value.is_null())
}

/// The first key of rotations.
fn rotation(config: &Map<String, Value>) -> Option<&'static str> {
    let keys = SPELLINGS.iter().chain(&THETAS).chain(&LOCAL_THETAS);
    let mut keys = keys.chain(&["partial_rotary_factor", "rotary_pct", "rotary_dim"]);
    keys.find(|key| has(config, key)).copied()
}

fn rotates(config: &Map<String, Value>) -> bool {
    rotation(config).is_some()
}

/// The parts of a config that may be the language model, with their names.
#[derive(Default)]
struct Parts<'a> {
    /// The outermost that say how they rotate; none of a config that says it itself.
    rotating: Vec<(&'a str, &'a Map<String, Value>)>,
    /// Those that describe a model without rotations.
    others: Vec<(&'a str, &'a Map<String, Value>)>,
}

impl<'a> Parts<'a> {
    fn find(&mut self, name: &'a str, config: &'a Map<String, Value>) {
        if rotates(config) {
            return;
        }
        if describes(config) {
            self.others.push((name, config));
        }
        // Beside a part for text, others are for pictures and sound.
        let has_text = config.get("text_config").is_some_and(Value::is_object);
        for (name, value) in config {
            let Some(part) = value.as_object() else {
                continue;
            };
            let is_other = match has_text {
                true => name != "text_config",
                false => {
                    SENSES.iter().any(|sense| name.contains(sense))
                        || SENSED.iter().any(|key| has(part, key))
                }
            };
            match rotates(part) {
                _ if is_other => {}
                true => self.rotating.push((name, part)),
                false => self.find(name, part),
            }
        }
    }

    /// Why the part that rotates may not be the language model; `None` where it is, and where none rotates.
    fn doubt(&self) -> Option<String> {
        let &(name, part) = self.rotating.first()?;
        if let Some((second, _)) = self.rotating.get(1) {
            return Some(format!(
                "several parts of it have rotations ({name}, {second}); {GIVE}"
            ));
        }
        let is_copied = |config: &Map<String, Value>, key: &str| {
            let is_within =
                |value: &Value| value.as_object().is_some_and(|o| std::ptr::eq(o, part));
            let is_equal = COPIED.contains(&key) && config.get(key) == part.get(key);
            is_equal && config.values().any(is_within)
        };
        let is_model = |config: &Map<String, Value>| {
            let mut keys = OTHERS.iter().filter(|key| has(config, key));
            keys.any(|key| !is_copied(config, key))
        };
        let (other, _) = self.others.iter().find(|(_, config)| is_model(config))?;
        Some(format!(
            "{name} has rotations, and {other} describes a model without them; {GIVE}"
        ))
    }
}
