//! A convolution along the sequence, added to its input.

use serde_json::json;

use crate::report::Params;

/// A convolutional encoding.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv {
    /// Width of the kernel; one number per axis.
    pub kernel: Vec<usize>,
    /// Groups of channels.
    pub groups: usize,
}

impl Conv {
    /// The parameters by the names of the report.
    pub fn params(&self) -> Params {
        let mut params = Params::new();
        params.insert("kernel".into(), json!(self.kernel));
        params.insert("groups".into(), json!(self.groups));
        params
    }
}
