//! T5's bias: a learned value for each head and bucket of distances, added to the scores.

use serde_json::json;

use crate::report::Params;

/// Buckets of distances.
#[derive(Clone, Debug, PartialEq)]
pub struct T5Bias {
    /// Rows of the table.
    pub num_buckets: usize,
    /// Distances from here on share the last bucket; `None` where the numbers do not tell.
    pub max_distance: Option<usize>,
    /// Whether later keys have buckets of their own.
    pub bidirectional: bool,
    /// Heads of queries.
    pub heads: usize,
}

impl T5Bias {
    /// The parameters by the names of the report.
    pub fn params(&self) -> Params {
        let mut params = Params::new();
        params.insert("num_buckets".into(), json!(self.num_buckets));
        params.insert("max_distance".into(), json!(self.max_distance));
        params.insert("bidirectional".into(), json!(self.bidirectional));
        params.insert("heads".into(), json!(self.heads));
        params
    }
}
