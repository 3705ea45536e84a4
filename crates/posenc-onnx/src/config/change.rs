//! A configuration before and after.

use serde_json::{Map, Value};

use super::lengths::Lengths;
use super::text;
use crate::error::Refusal;
use crate::request::hf_config::HfConfigError;

/// The key of the length in a `tokenizer_config.json`.
const TOKENIZER: [&str; 1] = ["model_max_length"];

/// The key of the length in a `generation_config.json`.
const GENERATION: [&str; 1] = ["max_length"];

/// The key of the length in a `sentence_bert_config.json`.
const SENTENCES: [&str; 1] = ["max_seq_length"];

/// The keys of the length in a `genai_config.json`, within their objects.
const GENAI: [(&str, &str); 2] = [("model", "context_length"), ("search", "max_length")];

/// A `config.json` with what a rewrite changes in it. All other keys stay as they are, in their order.
///
/// ```
/// # use posenc_onnx::{Model, Rescale};
/// # use serde_json::json;
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let done = model.plan(Rescale::linear(4.0).original_length(64))?.apply()?;
/// let change = done.config(&json!({"max_position_embeddings": 64, "vocab_size": 99}))?;
/// assert_eq!(change.changes()["max_position_embeddings"], json!([64, 256]));
/// assert_eq!(change.value()["rope_scaling"], json!({"rope_type": "linear", "factor": 4.0}));
/// assert_eq!(change.value()["vocab_size"], 99);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigChange {
    value: Value,
    changes: Map<String, Value>,
    pub(super) warnings: Vec<String>,
    pub(super) lengths: Lengths,
}

impl ConfigChange {
    pub(super) fn new(old: &Value, new: Map<String, Value>, lengths: Lengths) -> Self {
        let value = Value::Object(new);
        let mut changes = Map::new();
        differences(old, &value, "", &mut changes);
        Self {
            value,
            changes,
            warnings: vec![],
            lengths,
        }
    }

    pub(super) fn with_warnings(self, warnings: Vec<String>) -> Self {
        Self { warnings, ..self }
    }

    /// The configuration afterwards.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The values that changed, by their keys, as in
    /// [`ConfigFile::changes`](crate::report::ConfigFile::changes).
    pub fn changes(&self) -> &Map<String, Value> {
        &self.changes
    }

    /// What of the rewrite no key describes, one sentence each.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale};
    /// # use serde_json::json;
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Rescale::linear(4.0).original_length(64))?.apply()?;
    /// let change = done.config(&json!({}))?;
    /// assert!(change.warnings()[0].starts_with("no key of the config is the old length"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The configuration as the text of a file: indented by two spaces, with a line break at the end,
    /// and numbers as Python spells them.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale};
    /// # use serde_json::json;
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Rescale::none())?.apply()?;
    /// let change = done.config(&json!({"vocab_size": 99}))?;
    /// assert_eq!(change.to_text(), "{\n  \"vocab_size\": 99\n}\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_text(&self) -> String {
        text::text(&self.value)
    }

    /// The same lengths in a `tokenizer_config.json`: `model_max_length`, where it is the old length, or
    /// longer than a model that became shorter.
    ///
    /// # Errors
    /// JSON that is no object.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale};
    /// # use serde_json::json;
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Rescale::linear(4.0).original_length(64))?.apply()?;
    /// let change = done.config(&json!({"max_position_embeddings": 64}))?;
    /// let tokenizer = change.tokenizer_config(&json!({"model_max_length": 64}))?;
    /// assert_eq!(tokenizer.value(), &json!({"model_max_length": 256}));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tokenizer_config(&self, old: &Value) -> Result<Self, Refusal> {
        self.beside(old, &TOKENIZER)
    }

    /// The same lengths in a `generation_config.json`: `max_length`, where it is the old length, or longer
    /// than a model that became shorter.
    ///
    /// # Errors
    /// JSON that is no object.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale};
    /// # use serde_json::json;
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Rescale::linear(4.0).original_length(64))?.apply()?;
    /// let change = done.config(&json!({"max_position_embeddings": 64}))?;
    /// let generation = change.generation_config(&json!({"max_length": 64, "top_k": 64}))?;
    /// assert_eq!(generation.value(), &json!({"max_length": 256, "top_k": 64}));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn generation_config(&self, old: &Value) -> Result<Self, Refusal> {
        self.beside(old, &GENERATION)
    }

    /// The same lengths in a `sentence_bert_config.json`: `max_seq_length`, where it is the old length, or
    /// longer than a model that became shorter.
    ///
    /// # Errors
    /// JSON that is no object.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale};
    /// # use serde_json::json;
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Rescale::linear(4.0).original_length(64))?.apply()?;
    /// let change = done.config(&json!({"max_position_embeddings": 64}))?;
    /// let shorter = json!({"max_seq_length": 50});
    /// assert!(change.sentence_bert_config(&shorter)?.changes().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sentence_bert_config(&self, old: &Value) -> Result<Self, Refusal> {
        self.beside(old, &SENTENCES)
    }

    /// What becomes of a file whose keys are bounded by the length of the model.
    fn beside(&self, old: &Value, keys: &[&str]) -> Result<Self, Refusal> {
        let mut new = object(old)?.clone();
        self.lengths.edit_bounded(&mut new, keys);
        Ok(Self::new(old, new, self.lengths.clone()))
    }

    /// The same lengths in a `genai_config.json`: `model.context_length` and `search.max_length`,
    /// where they are the old length, or longer than a model that became shorter.
    ///
    /// # Errors
    /// JSON that is no object.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale};
    /// # use serde_json::json;
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Rescale::linear(4.0).original_length(64))?.apply()?;
    /// let change = done.config(&json!({"max_position_embeddings": 64}))?;
    /// let genai = json!({"model": {"context_length": 64}, "search": {"max_length": 20}});
    /// let genai = change.genai_config(&genai)?;
    /// assert_eq!(genai.changes(), json!({"model.context_length": [64, 256]}).as_object().unwrap());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn genai_config(&self, old: &Value) -> Result<Self, Refusal> {
        let mut new = object(old)?.clone();
        for (inner, key) in GENAI {
            if let Some(Value::Object(inner)) = new.get_mut(inner) {
                self.lengths.edit_bounded(inner, &[key]);
            }
        }
        Ok(Self::new(old, new, self.lengths.clone()))
    }
}

/// The object that a configuration is.
///
/// # Errors
/// Where it is none.
pub(super) fn object(value: &Value) -> Result<&Map<String, Value>, Refusal> {
    let wrong = || Refusal::invalid(HfConfigError::NotAnObject.to_string());
    value.as_object().ok_or_else(wrong)
}

/// Adds what differs between two values, by the path to it.
fn differences(old: &Value, new: &Value, path: &str, changes: &mut Map<String, Value>) {
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        if old != new {
            changes.insert(
                path.to_owned(),
                Value::Array(vec![old.clone(), new.clone()]),
            );
        }
        return;
    };
    let is_new = |key: &&String| !before.contains_key(*key);
    for key in before.keys().chain(after.keys().filter(is_new)) {
        let at = |map: &Map<String, Value>| map.get(key).cloned().unwrap_or_default();
        let path = match path {
            "" => key.clone(),
            outer => format!("{outer}.{key}"),
        };
        differences(&at(before), &at(after), &path, changes);
    }
}
