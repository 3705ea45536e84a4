//! From text to a model: the official syntax, as the parser of onnx 1.23 reads it.
//!
//! Three things are read that it drops or refuses: lists of tensors, graphs and types, quoted names
//! of tensors among attributes, and overloads that are quoted. Refused, and not stored as they
//! stand, are values that do not fit their type and tensors with too many or too few of them.

use crate::error::Result;
use crate::model::Model;

mod attribute;
mod cursor;
mod graph;
mod model;
mod tensor;
mod types;

impl Model {
    /// Reads a model from text in the official ONNX syntax.
    ///
    /// What [`Model::text`] writes with [`Weights::Full`](super::Weights::Full) comes back with the
    /// same graph and the same values, but for what
    /// [`ModelText::unsaid`](super::ModelText::unsaid) names. Payloads of other files are looked
    /// for where the process runs.
    ///
    /// # Errors
    /// When the text is not in the syntax, with line and column (both from 1, columns in
    /// characters); and as [`Model::from_bytes`].
    pub fn parse(text: &str) -> Result<Self> {
        Self::from_bytes(model::encode(text)?, None)
    }
}

#[cfg(test)]
mod tests;
