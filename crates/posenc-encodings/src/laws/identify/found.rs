//! The result of an identification.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::{Map, Value};

/// The reading of one set of frequencies.
#[derive(Debug, Clone, PartialEq)]
pub struct Identified {
    /// Base θ; absent where the numbers do not fix it.
    pub theta: Option<f64>,
    /// The scaling; absent for plain RoPE.
    pub scaling: Option<IdentifiedScaling>,
    /// Largest relative difference between the frequencies and what the
    /// reading gives; 0 for a custom list.
    pub fit_error: f64,
}

impl Identified {
    /// Frequencies of no law.
    pub(crate) fn custom(inv_freq: &[f64], theta: Option<f64>) -> Self {
        let mut parameters = Map::new();
        parameters.insert("inv_freq".to_owned(), Value::from(inv_freq.to_vec()));
        let scaling = IdentifiedScaling {
            word: "custom",
            parameters,
            is_switched: false,
        };
        Self {
            theta,
            scaling: Some(scaling),
            fit_error: 0.0,
        }
    }
}

/// A scaling as far as its numbers determine it; serialized as in `inspect --json`.
#[derive(Debug, Clone, PartialEq)]
pub struct IdentifiedScaling {
    /// The word of the law, `custom` for frequencies of no law.
    word: &'static str,
    /// Its parameters, `null` where the numbers do not fix them.
    parameters: Map<String, Value>,
    /// Whether a graph switches between frequencies while it runs.
    is_switched: bool,
}

impl IdentifiedScaling {
    /// A scaling by the law of that word.
    pub(crate) fn new(word: &'static str, parameters: &impl Serialize) -> Self {
        let parameters = match serde_json::to_value(parameters) {
            Ok(Value::Object(parameters)) => parameters,
            // A law's parameters are a struct of numbers.
            _ => Map::new(),
        };
        Self {
            word,
            parameters,
            is_switched: false,
        }
    }

    /// The same in a graph that switches between frequencies while it runs.
    pub(crate) fn switched(self) -> Self {
        Self {
            is_switched: true,
            ..self
        }
    }

    /// The word of the law, `custom` for frequencies of no law.
    pub fn name(&self) -> &'static str {
        self.word
    }

    /// A parameter by its key in JSON; `null` where there is none or it is not fixed.
    pub fn get(&self, key: &str) -> &Value {
        self.parameters.get(key).unwrap_or(&Value::Null)
    }

    /// The extension s, for the laws that have one.
    pub fn factor(&self) -> Option<f64> {
        self.get("factor").as_f64()
    }

    /// The parameters, unless a graph switches between frequencies while it runs.
    pub(crate) fn fixed_parameters(&self) -> Option<&Map<String, Value>> {
        (!self.is_switched).then_some(&self.parameters)
    }
}

impl Serialize for IdentifiedScaling {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(1 + self.parameters.len()))?;
        map.serialize_entry("type", self.word)?;
        for (key, value) in &self.parameters {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// One explanation of the numbers.
#[derive(Debug, Clone)]
pub(crate) struct Fit {
    pub(crate) found: Identified,
    /// Bits that its parameters take.
    pub(crate) cost: f64,
}
