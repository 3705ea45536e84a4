//! Values that nobody gave.

use serde::Serialize;
use serde_json::Value;

/// A value that no parameter of the request gave.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inferred {
    /// The parameter, spelled as its flag without the dashes.
    pub name: String,
    /// What it was taken to be.
    pub value: Value,
    /// Where it came from, in words.
    pub source: String,
}

impl Inferred {
    /// A value with its source.
    pub fn new(name: &str, value: impl Into<Value>, source: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            value: value.into(),
            source: source.into(),
        }
    }
}

/// Adds a value to a list, once.
pub fn add(list: &mut Vec<Inferred>, value: Inferred) {
    if !list.contains(&value) {
        list.push(value);
    }
}
