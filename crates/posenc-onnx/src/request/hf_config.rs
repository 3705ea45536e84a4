//! The rotary positions of a Hugging Face `config.json`.
//!
//! Read as transformers 4.57 reads it, in the spellings of version 5 too:
//! `rope_scaling` or `rope_parameters`, `type` or `rope_type`, one dict or one
//! per layer type; as in version 5, an original length outside of the dict
//! counts where the dict has none. What the model class alone decides is not guessed: rules
//! depend on the keys that are there, never on `model_type`.
//!
//! ```
//! # use posenc_onnx::request::hf_config::HfConfig;
//! let config = HfConfig::parse(r#"{"rope_theta": 1e6, "max_position_embeddings": 4096}"#)?;
//! let rope = config.rope_for(0)?.unwrap();
//! assert_eq!((rope.theta, rope.max_position), (1e6, Some(4096)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod layers;
mod nested;
mod section;
#[cfg(test)]
mod tests;
mod widths;

use serde_json::{Map, Value};

use posenc_encodings::hf::{Dict, json};
use posenc_encodings::inferred::{self, Inferred};
use posenc_encodings::laws::{Rope, Scaling, ScalingError};

pub use layers::LayerKind;
pub use posenc_encodings::hf::HfConfigError;
pub(crate) use section::SPELLINGS;
pub(crate) use widths::{DEFAULT_THETA, LOCAL_THETAS, THETAS};

/// A model configuration, of which only the keys about positions are read.
///
/// ```
/// # use posenc_onnx::request::hf_config::HfConfig;
/// let text = r#"{"rope_scaling": {"type": "linear", "factor": 2.0}}"#;
/// let rope = HfConfig::parse(text)?.rope_for(0)?.unwrap();
/// assert_eq!((rope.theta, rope.scaling.to_json()["factor"].as_f64()), (1e4, Some(2.0)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct HfConfig {
    text: Map<String, Value>,
    /// Why these may be the keys of another model than the language model.
    doubt: Option<String>,
}

/// The rotary embedding of one layer.
///
/// ```
/// # use posenc_onnx::request::hf_config::HfConfig;
/// let text = r#"{"hidden_size": 64, "num_attention_heads": 4, "rope_theta": 5e5}"#;
/// let rope = HfConfig::parse(text)?.rope_for(0)?.unwrap();
/// assert_eq!((rope.theta, rope.rotary_dim), (5e5, Some(16)));
/// assert_eq!(rope.inferred[0].name, "theta");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct RopeRequest {
    /// Base θ; 10000 where the config has none.
    pub theta: f64,
    /// Width of the rotated part of a head; absent where only the graph has it.
    pub rotary_dim: Option<usize>,
    /// Width of a head, without the unrotated part of latent attention.
    pub head_dim: Option<usize>,
    /// Share of a head that rotates, where only the graph has the width of one.
    pub(crate) share: Option<f64>,
    /// The law of the frequencies.
    pub scaling: Scaling,
    /// Factor on the softmax scale of the whole score: DeepSeek's correction
    /// where the keys of latent attention are there, else 1.
    pub softmax_factor: f64,
    /// Kind of the layer.
    pub kind: LayerKind,
    /// `max_position_embeddings`.
    pub max_position: Option<usize>,
    /// The values above with the keys they came from.
    pub inferred: Vec<Inferred>,
}

impl RopeRequest {
    /// Whether a key says the base, which is the default otherwise.
    pub(crate) fn states_theta(&self) -> bool {
        widths::is_stated(&self.inferred)
    }

    /// Width of the rotated part of a head of this width in the graph; `None` where the config does not say.
    pub(crate) fn width_of(&self, head_dim: usize) -> Option<usize> {
        let shared = || self.share.map(|share| widths::rotated(head_dim, share));
        self.rotary_dim.or_else(shared)
    }

    /// The embedding in a graph that has these widths where the config has none.
    /// Parameters that are impossible there are refused.
    ///
    /// # Errors
    ///
    /// As [`Scaling::check`].
    ///
    /// ```
    /// # use posenc_onnx::request::hf_config::HfConfig;
    /// let rope = HfConfig::parse(r#"{"rope_theta": 5e5}"#)?.rope_for(0)?.unwrap();
    /// assert_eq!(rope.rotary_dim, None);
    /// assert_eq!(rope.rope(16, 32)?.rotary_dim, 16);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rope(&self, rotary_dim: usize, head_dim: usize) -> Result<Rope, ScalingError> {
        let rotary_dim = self.width_of(head_dim).unwrap_or(rotary_dim);
        let head_dim = self.head_dim.unwrap_or(head_dim).max(rotary_dim);
        let rope = Rope::new(self.theta, rotary_dim, head_dim)?;
        self.scaling.check(&rope)?;
        Ok(rope)
    }
}

impl HfConfig {
    /// Parses the text of a `config.json`.
    ///
    /// # Errors
    ///
    /// Text that is not JSON, or not an object.
    ///
    /// ```
    /// # use posenc_onnx::request::hf_config::{HfConfig, HfConfigError};
    /// let config = HfConfig::parse(r#"{"num_hidden_layers": 2}"#)?;
    /// assert_eq!(config.layers()?, Some(2));
    /// assert_eq!(HfConfig::parse("[]"), Err(HfConfigError::NotAnObject));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, HfConfigError> {
        Self::from_value(json::parse(text)?)
    }

    /// A config that is parsed already; a nested `text_config` replaces what is
    /// around it, and so does the only nested config with rotations where nothing else
    /// in it describes a model without them.
    ///
    /// # Errors
    ///
    /// A value that is not an object.
    ///
    /// ```
    /// # use posenc_onnx::request::hf_config::HfConfig;
    /// let value = serde_json::json!({"text_config": {"num_hidden_layers": 2}});
    /// assert_eq!(HfConfig::from_value(value)?.layers()?, Some(2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_value(value: Value) -> Result<Self, HfConfigError> {
        let Value::Object(map) = value else {
            return Err(HfConfigError::NotAnObject);
        };
        let nested::Part { text, doubt } = nested::text_part(map);
        Ok(Self { text, doubt })
    }

    /// Why no key tells anything about rotations, as in the config of something else.
    pub(crate) fn says_nothing(&self) -> Option<String> {
        let doubt = self.doubt.clone();
        doubt.or_else(|| nested::says_nothing(&self.text))
    }

    /// Why the keys that are read may be those of another model than the language model.
    pub(crate) fn doubt(&self) -> Option<&str> {
        self.doubt.as_deref()
    }

    fn dict(&self) -> Dict<'_> {
        Dict::new(&self.text, "")
    }

    /// Number of layers, where the config has it.
    ///
    /// # Errors
    ///
    /// A count that is not a whole number.
    ///
    /// ```
    /// # use posenc_onnx::request::hf_config::HfConfig;
    /// assert_eq!(HfConfig::parse(r#"{"n_layer": 12}"#)?.layers()?, Some(12));
    /// assert_eq!(HfConfig::parse("{}")?.layers()?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn layers(&self) -> Result<Option<usize>, HfConfigError> {
        let dict = self.dict();
        Ok(match dict.usize("num_hidden_layers")? {
            Some(layers) => Some(layers),
            None => dict.usize("n_layer")?,
        })
    }

    /// Heads of queries of every layer, with the key, where the config has one number for all.
    pub(crate) fn heads(&self) -> Option<(&str, usize)> {
        let heads = self.dict().first_usize(&["num_attention_heads", "n_head"]);
        heads.ok().flatten()
    }

    /// Heads of keys of every layer, with the key, where the config has one number for all.
    pub(crate) fn kv_heads(&self) -> Option<(&str, usize)> {
        let heads = self.dict().first_usize(&["num_key_value_heads"]);
        heads.ok().flatten()
    }

    /// How many layers attend to earlier tokens one by one, where the config has a word for each layer.
    pub(crate) fn attending(&self) -> Option<usize> {
        let words = self.text.get("layer_types")?.as_array()?.iter();
        let attends = |word: &&str| word.ends_with("attention") && *word != "linear_attention";
        Some(words.filter_map(Value::as_str).filter(attends).count())
    }

    /// The key that says ALiBi, if one does.
    pub(crate) fn alibi(&self) -> Option<&'static str> {
        let is = |key: &str, value: Value| self.text.get(key) == Some(&value);
        let kind = "position_embedding_type";
        match is("alibi", Value::Bool(true)) {
            true => Some("alibi"),
            false => is(kind, "alibi".into()).then_some(kind),
        }
    }

    /// `max_position_embeddings` (`n_positions` in older configs).
    ///
    /// # Errors
    ///
    /// A length that is not a whole number.
    ///
    /// ```
    /// # use posenc_onnx::request::hf_config::HfConfig;
    /// let config = HfConfig::parse(r#"{"max_position_embeddings": 4096}"#)?;
    /// assert_eq!(config.max_position()?, Some(4096));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_position(&self) -> Result<Option<usize>, HfConfigError> {
        let dict = self.dict();
        Ok(match dict.usize("max_position_embeddings")? {
            Some(length) => Some(length),
            None => dict.usize("n_positions")?,
        })
    }

    /// The rotary embedding of layer `layer`, counted from 0; nothing where that
    /// layer has none (`no_rope_layers`).
    ///
    /// # Errors
    ///
    /// A key of the scaling dict that its type does not have, an unknown type, a
    /// missing or impossible value, or something that is not supported.
    ///
    /// ```
    /// # use posenc_onnx::request::hf_config::HfConfig;
    /// let config = HfConfig::parse(r#"{"no_rope_layers": [1, 0]}"#)?;
    /// assert!(config.rope_for(0)?.is_some() && config.rope_for(1)?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rope_for(&self, layer: usize) -> Result<Option<RopeRequest>, HfConfigError> {
        let dict = self.dict();
        if !layers::has_rope(&dict, layer)? {
            return Ok(None);
        }
        let kind = layers::kind(&dict, layer)?;
        let mut inferred = vec![];
        let local = match kind {
            LayerKind::Sliding => dict.first_f64(&LOCAL_THETAS)?,
            _ => None,
        };
        // Layers with a base of their own are never scaled.
        let section = match local {
            Some(_) => None,
            None => section::section(&dict, &kind)?,
        };
        let theta = widths::theta(&dict, section.as_ref(), local, &mut inferred)?;
        let widths = widths::widths(&dict, section.as_ref(), &mut inferred)?;
        let scaling = match &section {
            Some(section) => section::scaling(&dict, section, &mut inferred)?,
            None => Scaling::None,
        };
        let rotary_dim = if scaling.spans_head() {
            widths.head
        } else {
            widths.rotary
        };
        if let Some(rotary_dim) = rotary_dim {
            inferred.push(Inferred::new("rotary-dim", rotary_dim, widths.source));
            let head_dim = widths.head.unwrap_or(rotary_dim).max(rotary_dim);
            let rope = Rope::new(theta, rotary_dim, head_dim)?;
            scaling.check(&rope)?;
        }
        let latent = dict.has("qk_rope_head_dim") || dict.has("kv_lora_rank");
        let softmax_factor = if latent {
            scaling.softmax_factor()
        } else {
            1.0
        };
        if softmax_factor != 1.0 {
            let source = "mscale_all_dim with latent attention";
            inferred.push(Inferred::new("softmax-factor", softmax_factor, source));
        }
        Ok(Some(RopeRequest {
            theta,
            rotary_dim,
            head_dim: widths.head,
            share: widths.share.filter(|_| !scaling.spans_head()),
            scaling,
            softmax_factor,
            kind,
            max_position: self.max_position()?,
            inferred,
        }))
    }

    /// Every value of all layers, with its key.
    ///
    /// # Errors
    ///
    /// As [`HfConfig::rope_for`].
    ///
    /// ```
    /// # use posenc_onnx::request::hf_config::HfConfig;
    /// let config = HfConfig::parse(r#"{"rope_theta": 5e5}"#)?;
    /// let said = &config.describe()?[0];
    /// assert_eq!((said.name.as_str(), said.source.as_str()), ("theta", "rope_theta"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn describe(&self) -> Result<Vec<Inferred>, HfConfigError> {
        let mut all: Vec<Inferred> = Vec::new();
        for layer in 0..self.layers()?.unwrap_or(1).min(layers::MOST_LAYERS) {
            let request = self.rope_for(layer)?;
            for inferred in request.into_iter().flat_map(|request| request.inferred) {
                inferred::add(&mut all, inferred);
            }
        }
        Ok(all)
    }
}
