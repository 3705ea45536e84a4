//! Sines and cosines of the position, added to the embeddings.

use serde_json::json;

use crate::kind::Layout;
use crate::report::Params;

/// A sinusoidal code.
#[derive(Clone, Debug, PartialEq)]
pub struct Sinusoidal {
    /// Width of a row.
    pub dim: usize,
    /// Sines and cosines in turn, or all sines first.
    pub layout: Layout,
    /// The longest wavelength is 2π times this.
    pub base: f64,
    /// Rows; `None` where they are computed.
    pub max_positions: Option<usize>,
    /// The position that the first token counts as.
    pub offset: usize,
}

impl Sinusoidal {
    /// The parameters by the names of the report.
    pub fn params(&self) -> Params {
        let mut params = Params::new();
        params.insert("dim".into(), json!(self.dim));
        params.insert("layout".into(), json!(self.layout));
        params.insert("base".into(), json!(self.base));
        params.insert("max_positions".into(), json!(self.max_positions));
        params.insert("offset".into(), json!(self.offset));
        params
    }
}
