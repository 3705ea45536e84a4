//! DeBERTa: content meets embeddings of the bucketed distance on either side.

use serde_json::json;

use crate::report::Params;

/// Disentangled attention.
#[derive(Clone, Debug, PartialEq)]
pub struct Disentangled {
    /// Queries meet positions.
    pub c2p: bool,
    /// Keys meet positions.
    pub p2c: bool,
    /// Buckets in each direction; `None` where distances have no buckets.
    pub buckets: Option<usize>,
    /// Distances from here on share the last row.
    pub max_distance: Option<usize>,
}

impl Disentangled {
    /// The parameters by the names of the report.
    pub fn params(&self) -> Params {
        let mut params = Params::new();
        params.insert("c2p".into(), json!(self.c2p));
        params.insert("p2c".into(), json!(self.p2c));
        params.insert("buckets".into(), json!(self.buckets));
        params.insert("max_distance".into(), json!(self.max_distance));
        params
    }
}
