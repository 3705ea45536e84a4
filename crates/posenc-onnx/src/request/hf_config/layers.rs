//! How layers differ: full or sliding attention, with or without rotation.

use serde_json::Value;

use posenc_encodings::hf::{Dict, HfConfigError};

/// More layers than any model has.
pub(crate) const MOST_LAYERS: usize = 65_536;

/// Every how many layers Gemma 3 attends to everything, where the config of a
/// model with two bases does not say.
const DEFAULT_PATTERN: usize = 6;

/// Kind of a layer's attention.
///
/// ```
/// # use posenc_onnx::request::hf_config::{HfConfig, LayerKind};
/// let text = r#"{"layer_types": ["sliding_attention", "full_attention"]}"#;
/// let config = HfConfig::parse(text)?;
/// assert_eq!(config.rope_for(0)?.unwrap().kind, LayerKind::Sliding);
/// assert_eq!(config.rope_for(1)?.unwrap().kind, LayerKind::Full);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayerKind {
    /// All positions.
    Full,
    /// A window.
    Sliding,
    /// Another word of `layer_types`.
    Other(String),
}

impl LayerKind {
    /// The word in `layer_types` and in dicts per layer type.
    ///
    /// ```
    /// # use posenc_onnx::request::hf_config::LayerKind;
    /// assert_eq!(LayerKind::Sliding.key(), "sliding_attention");
    /// assert_eq!(LayerKind::Other("chunked_attention".into()).key(), "chunked_attention");
    /// ```
    pub fn key(&self) -> &str {
        match self {
            Self::Full => "full_attention",
            Self::Sliding => "sliding_attention",
            Self::Other(word) => word,
        }
    }

    fn from_key(key: &str) -> Self {
        match key {
            "full_attention" => Self::Full,
            "sliding_attention" => Self::Sliding,
            other => Self::Other(other.to_owned()),
        }
    }
}

/// `layer_types`, else the pattern: with a pattern of n every n-th layer is full.
pub(crate) fn kind(dict: &Dict<'_>, layer: usize) -> Result<LayerKind, HfConfigError> {
    if let Some(list) = dict.array("layer_types")? {
        let entry = entry(dict, "layer_types", list, layer)?;
        let wrong = || HfConfigError::WrongType {
            key: dict.path("layer_types"),
            want: "a list of words",
            got: entry.to_string(),
        };
        return entry.as_str().map(LayerKind::from_key).ok_or_else(wrong);
    }
    let patterns = ["sliding_window_pattern", "_sliding_window_pattern"];
    let pattern = dict.first_usize(&patterns)?.map(|(_, pattern)| pattern);
    let pattern = match pattern {
        None if dict.has("rope_local_base_freq") => Some(DEFAULT_PATTERN),
        given => given,
    };
    if let Some(pattern) = pattern.filter(|&pattern| pattern > 0) {
        let full = (layer + 1).is_multiple_of(pattern);
        return Ok(if full {
            LayerKind::Full
        } else {
            LayerKind::Sliding
        });
    }
    // ModernBERT counts from the first layer.
    if let Some(every) = dict
        .usize("global_attn_every_n_layers")?
        .filter(|&every| every > 0)
    {
        let full = layer.is_multiple_of(every);
        return Ok(if full {
            LayerKind::Full
        } else {
            LayerKind::Sliding
        });
    }
    Ok(LayerKind::Full)
}

/// `no_rope_layers` (1 where the layer rotates, despite the name), else every
/// `no_rope_layer_interval`-th layer does not.
pub(crate) fn has_rope(dict: &Dict<'_>, layer: usize) -> Result<bool, HfConfigError> {
    let list = dict
        .array("no_rope_layers")?
        .filter(|list| !list.is_empty());
    if let Some(list) = list {
        let entry = entry(dict, "no_rope_layers", list, layer)?;
        let flag = match entry {
            Value::Bool(flag) => Some(*flag),
            number => number
                .as_f64()
                .filter(|&x| x == 0.0 || x == 1.0)
                .map(|x| x == 1.0),
        };
        let wrong = || HfConfigError::WrongType {
            key: dict.path("no_rope_layers"),
            want: "a list of 0 and 1",
            got: entry.to_string(),
        };
        return flag.ok_or_else(wrong);
    }
    let interval = dict
        .usize("no_rope_layer_interval")?
        .filter(|&interval| interval > 0);
    Ok(interval.is_none_or(|interval| !(layer + 1).is_multiple_of(interval)))
}

fn entry<'a>(
    dict: &Dict<'_>,
    key: &str,
    list: &'a [Value],
    layer: usize,
) -> Result<&'a Value, HfConfigError> {
    let missing = || HfConfigError::Layer {
        key: dict.path(key),
        entries: list.len(),
        layer,
    };
    list.get(layer).ok_or_else(missing)
}
