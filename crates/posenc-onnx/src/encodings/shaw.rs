//! Learned vectors for each distance that meet queries, keys or values.

use serde_json::json;

use crate::report::Params;

/// Relative position representations.
#[derive(Clone, Debug, PartialEq)]
pub struct Shaw {
    /// Distances beyond count as this one, or have no vector.
    pub max_distance: Option<usize>,
    /// Whether vectors meet queries, as added to the keys.
    pub key: bool,
    /// Whether vectors are added to the values.
    pub value: bool,
    /// Whether vectors meet keys, as added to the queries.
    pub query: bool,
}

impl Shaw {
    /// The parameters by the names of the report.
    pub fn params(&self) -> Params {
        let mut params = Params::new();
        params.insert("max_distance".into(), json!(self.max_distance));
        params.insert("key".into(), json!(self.key));
        params.insert("value".into(), json!(self.value));
        params.insert("query".into(), json!(self.query));
        params
    }
}
