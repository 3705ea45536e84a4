//! Transformer-XL: queries meet projected sinusoids of the distance.

use serde_json::json;

use crate::report::Params;

/// Relative sinusoids.
#[derive(Clone, Debug, PartialEq)]
pub struct TransformerXl {
    /// Heads of queries.
    pub heads: usize,
    /// Features of a head.
    pub head_dim: usize,
    /// Distances beyond count as this one.
    pub clamp: Option<usize>,
}

impl TransformerXl {
    /// The parameters by the names of the report.
    pub fn params(&self) -> Params {
        let mut params = Params::new();
        params.insert("heads".into(), json!(self.heads));
        params.insert("head_dim".into(), json!(self.head_dim));
        params.insert("clamp".into(), json!(self.clamp));
        params
    }
}
