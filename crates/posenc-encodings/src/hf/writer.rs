//! The scaling dict of a config, as one law writes it.

use serde_json::{Map, Value};

use super::reader::{MAXIMUM, ORIGINAL};

/// What a config has to say of a law, in the keys that [`Reader`](super::Reader) reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Writer {
    /// The length that the config says the model is made for.
    pub max_length: Option<usize>,
    /// Whether the scaling dict is the `rope_parameters` of version 5 of transformers, which holds
    /// the original length of every law.
    pub is_parameters: bool,
    /// The base θ.
    pub theta: f64,
    /// The type of the scaling dict; `None` for plain RoPE, which needs no dict.
    pub rope_type: Option<&'static str>,
    /// The keys of the scaling dict, without its type.
    pub section: Map<String, Value>,
    /// The keys outside of the scaling dict.
    pub outside: Map<String, Value>,
}

impl Writer {
    /// Plain RoPE of this base.
    pub fn new(theta: f64, max_length: Option<usize>, is_parameters: bool) -> Self {
        Self {
            max_length,
            is_parameters,
            theta,
            rope_type: None,
            section: Map::new(),
            outside: Map::new(),
        }
    }

    /// Sets a key of the scaling dict.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.section.insert(key.to_owned(), value.into());
    }

    /// Sets a key of the scaling dict where there is a value.
    pub fn set_given(&mut self, key: &str, value: Option<f64>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    /// Sets the original length within the scaling dict.
    pub fn set_original_length(&mut self, length: usize) {
        self.set(ORIGINAL, length);
    }

    /// Sets the original length outside of the scaling dict.
    pub fn set_outer_original_length(&mut self, length: usize) {
        self.outside.insert(ORIGINAL.to_owned(), length.into());
    }

    /// Sets the model's own length.
    pub fn set_max_length(&mut self, length: usize) {
        self.outside.insert(MAXIMUM.to_owned(), length.into());
    }
}
