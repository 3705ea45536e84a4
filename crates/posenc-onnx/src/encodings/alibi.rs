//! Attention with linear biases: head h adds `m_h · (key − query)` to the scores of causal attention.

use serde_json::json;

use crate::report::Params;

/// Linear biases as the softmax sees them.
#[derive(Clone, Debug, PartialEq)]
pub struct Alibi {
    /// Heads of queries.
    pub heads: usize,
    /// m of each head; positive where nearer keys weigh more.
    pub slopes: Vec<f64>,
    /// Whether the bias is `−m · abs(key − query)`; `None` where only earlier keys are seen.
    pub symmetric: Option<bool>,
}

impl Alibi {
    /// The parameters by the names of the report.
    pub fn params(&self) -> Params {
        let mut params = Params::new();
        params.insert("heads".into(), json!(self.heads));
        params.insert("slopes".into(), json!(self.slopes));
        params.insert("symmetric".into(), json!(self.symmetric));
        params
    }
}
