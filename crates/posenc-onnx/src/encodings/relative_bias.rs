//! A learned bias for each head and clipped distance, or for each offset within a window.

use serde_json::json;

use crate::report::Params;

/// Biases by distance.
#[derive(Clone, Debug, PartialEq)]
pub struct RelativeBias {
    /// Distances beyond count as this one; `None` for windows.
    pub max_distance: Option<usize>,
    /// Rows and columns of the window.
    pub window: Option<[usize; 2]>,
    /// Heads of queries.
    pub heads: usize,
}

impl RelativeBias {
    /// The parameters by the names of the report.
    pub fn params(&self) -> Params {
        let mut params = Params::new();
        params.insert("max_distance".into(), json!(self.max_distance));
        params.insert("window".into(), json!(self.window));
        params.insert("heads".into(), json!(self.heads));
        params
    }
}
