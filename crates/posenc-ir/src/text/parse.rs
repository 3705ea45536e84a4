//! Parses models in the official syntax, as the parser of onnx 1.23 does.
//!
//! Unlike that parser, it accepts lists of tensors, graphs and types, quoted names of tensors in
//! attributes, and quoted overloads; and it refuses values that do not fit their type, and tensors
//! with too many or too few values.

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
    /// It reads what [`Model::text`] writes with [`Weights::Full`](super::Weights::Full): the same
    /// graph and values, except for what [`ModelText::omissions`](super::ModelText::omissions) lists.
    /// The model has no path, so that external data is not found.
    ///
    /// # Errors
    /// When the text does not follow the syntax, with line and column (both from 1, columns in
    /// characters); and as [`Model::from_bytes`].
    pub fn parse(text: &str) -> Result<Self> {
        Self::from_bytes(model::encode(text)?)
    }
}

#[cfg(test)]
mod tests;
