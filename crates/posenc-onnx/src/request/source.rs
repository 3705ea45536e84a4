//! Files that a request refers to, as data.

use std::fmt;
use std::path::Path;

use bytes::Bytes;
use posenc_encodings::hf::json;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::hf_config::HfConfig;
use crate::error::Refusal;

/// A Hugging Face `config.json`, with the name that errors show.
///
/// ```
/// # use posenc_onnx::{Model, Rescale, request::Config};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let config = Config::from_text("my.json", r#"{"rope_theta": "large"}"#);
/// let error = model.plan(Rescale::follow(config)).unwrap_err();
/// assert!(error.to_string().starts_with("my.json: "), "{error}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    name: String,
    /// The text, or why the file cannot be read.
    text: Result<String, String>,
    /// Whether it was found in the folder of the model.
    is_next_to: bool,
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read.
    ///
    /// ```
    /// # use posenc_onnx::request::Config;
    /// let refusal = Config::open("absent/config.json").unwrap_err();
    /// assert!(refusal.reason().starts_with("absent/config.json: "));
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Refusal> {
        let config = Self::deferred(path.as_ref());
        match &config.text {
            Ok(_) => Ok(config),
            Err(why) => Err(config.refuse(why)),
        }
    }

    /// The `config.json` in the folder of a model; `None` where there is none. That it cannot be
    /// read, as where it is a folder, is an error only for a request that needs it.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale, request::Config};
    /// let path = "../../fixtures/mini/rope/model.onnx";
    /// let rescale = Rescale::linear(2.0).model_config(Config::next_to(path));
    /// assert!(!Model::open(path)?.plan(rescale)?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn next_to(model: impl AsRef<Path>) -> Option<Self> {
        let path = model.as_ref().parent()?.join("config.json");
        (path.is_file() || path.is_dir()).then(|| Self {
            is_next_to: true,
            ..Self::deferred(&path)
        })
    }

    /// A text that was read before.
    ///
    /// ```
    /// # use posenc_onnx::request::Config;
    /// let config = Config::from_text("config.json", r#"{"rope_theta": 5e5}"#);
    /// assert_eq!(serde_json::to_value(&config)?["rope_theta"], 5e5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_text(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            text: Ok(text.into()),
            is_next_to: false,
        }
    }

    fn deferred(path: &Path) -> Self {
        Self {
            name: path.display().to_string(),
            text: std::fs::read_to_string(path).map_err(|e| match e.kind() {
                std::io::ErrorKind::InvalidData => "the config is no text, so no JSON".to_owned(),
                _ => e.to_string(),
            }),
            is_next_to: false,
        }
    }

    /// The name that errors show.
    ///
    /// ```
    /// # use posenc_onnx::request::Config;
    /// assert_eq!(Config::from_text("of the hub", "{}").name(), "of the hub");
    /// ```
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where a value of it comes from, for people.
    pub(crate) fn place(&self) -> &str {
        if self.is_next_to {
            "config.json next to the model"
        } else {
            &self.name
        }
    }

    /// What the config says.
    pub(crate) fn parse(&self) -> Result<HfConfig, Refusal> {
        let text = self.text.as_ref().map_err(|why| self.refuse(why))?;
        HfConfig::parse(text).map_err(|e| self.refuse(e))
    }

    /// A refusal that names the config.
    pub(crate) fn refuse(&self, why: impl fmt::Display) -> Refusal {
        Refusal::invalid(format!("{}: {why}", self.name))
    }
}

impl Serialize for Config {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::Error;
        let text = self.text.as_ref().map_err(S::Error::custom)?;
        let value = json::parse(text).map_err(S::Error::custom)?;
        value.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        Ok(Self::from_text("hf-config", value.to_string()))
    }
}

/// A safetensors file, with the name that errors show.
///
/// ```
/// # use posenc_onnx::{Model, Swap, T5Bias, request::Tensors};
/// let model = Model::open("../../fixtures/mini/none/model.onnx")?;
/// let learned = Tensors::from_bytes("empty.safetensors", []);
/// let swap = Swap::to(T5Bias::default()).tensors(learned);
/// let error = model.plan(swap).unwrap_err();
/// assert!(error.to_string().starts_with("empty.safetensors: not a safetensors file"), "{error}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct Tensors {
    name: String,
    bytes: Bytes,
}

impl Tensors {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read.
    ///
    /// ```
    /// # use posenc_onnx::request::Tensors;
    /// let tensors = Tensors::open("../../fixtures/mini/t5/params.safetensors")?;
    /// assert!(tensors.name().ends_with("params.safetensors") && !tensors.bytes().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Refusal> {
        let name = path.as_ref().display().to_string();
        match std::fs::read(path.as_ref()) {
            Ok(bytes) => Ok(Self::from_bytes(name, bytes)),
            Err(why) => Err(Refusal::invalid(format!("{name}: {why}"))),
        }
    }

    /// The bytes of a file that was read before.
    ///
    /// ```
    /// # use posenc_onnx::request::Tensors;
    /// let tensors = Tensors::from_bytes("learned.safetensors", *b"bytes");
    /// assert_eq!((tensors.name(), tensors.bytes()), ("learned.safetensors", &b"bytes"[..]));
    /// ```
    pub fn from_bytes(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            name: name.into(),
            bytes: Bytes::from(bytes.into()),
        }
    }

    /// The name that errors show.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Tensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensors({}, {} bytes)", self.name, self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_in_place_of_the_config_is_named_where_it_is_needed() {
        let root = tempfile::tempdir().unwrap();
        let model = root.path().join("model.onnx");
        assert_eq!(Config::next_to(&model), None);
        std::fs::create_dir(root.path().join("config.json")).unwrap();
        let why = Config::next_to(&model).unwrap().parse().unwrap_err();
        assert!(why.reason().contains("config.json: "), "{why}");
    }

    #[test]
    fn a_config_with_words_of_python_is_kept() {
        let text = r#"{"time_step_limit": [0.0, Infinity], "head_dim": 16}"#;
        let value = serde_json::to_value(Config::from_text("config.json", text)).unwrap();
        let again: Config = serde_json::from_value(value).unwrap();
        assert_eq!(again.parse().unwrap(), HfConfig::parse(text).unwrap());
        assert!(serde_json::to_value(Config::from_text("config.json", "{")).is_err());
    }
}
