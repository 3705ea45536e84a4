//! The rotation of queries and keys at a site. Data only.

use ndarray::Array2;
use posenc_encodings::families::rope::{Fit, Rope};
use posenc_encodings::kind::Form;
use posenc_ir::NodeId;

use crate::detect::finding::Finding;
use crate::graph::region::Region;

/// The rotation of one operand of a site.
#[derive(Clone, Debug)]
pub(crate) struct RotaryOperand {
    /// Where it is.
    pub region: Region,
    /// What it computes.
    pub rotation: Rotation,
    /// The matrix that changes the basis of a head after the rotation, if there is one.
    pub basis: Option<Array2<f64>>,
}

/// A site whose queries and keys have the same rotation.
#[derive(Clone, Debug)]
pub(crate) struct RotarySite {
    /// The attention site.
    pub site: usize,
    /// The rotation of the queries.
    pub query: RotaryOperand,
    /// The rotation of the keys.
    pub key: RotaryOperand,
    /// The rotation beyond some length, where it depends on the length.
    pub switch: Option<Switch>,
    /// Which pairs follow which stream of positions, where there are several.
    pub streams: Option<Streams>,
    /// Plain operators or a fused one.
    pub form: Form,
    /// A node of it, for messages.
    pub node: NodeId,
}

/// A site at which a rotation was meant that is computed from quantized numbers.
#[derive(Clone, Debug)]
pub(crate) struct QuantizedSite {
    /// The rotation without quantization.
    pub site: RotarySite,
    /// Where numbers are quantized.
    pub node: NodeId,
    /// By how much they change there.
    pub change: f64,
}

/// A site whose queries and keys rotate by the rows and columns of a grid.
#[derive(Clone, Debug)]
pub(crate) struct AxialSite {
    /// The encoding at this site.
    pub finding: Finding,
    /// The regions that rotate queries and keys.
    pub regions: [Region; 2],
}

/// A rotation as read from the graph.
#[derive(Clone, Debug)]
pub(crate) struct Rotation {
    /// What it computes; pairs are places in the head.
    pub rope: Rope,
    /// The position of the first token: its angle over the frequency, of the pair that rotates
    /// slowest and so by the least angle.
    pub start: f64,
    /// The largest difference between the probed matrices and the rotation, over m.
    pub fit_error: f64,
    /// The probed cos and sin, times m: `[pos, pair]`.
    pub cos: Array2<f64>,
    /// See `cos`.
    pub sin: Array2<f64>,
    /// How it was read.
    pub mode: ProbeMode,
}

impl Rotation {
    pub(crate) fn new(fit: Fit, mode: ProbeMode) -> Self {
        Self {
            rope: fit.rope,
            start: fit.start,
            fit_error: fit.fit_error,
            cos: fit.cos,
            sin: fit.sin,
            mode,
        }
    }
}

/// How unit vectors are fed to read the matrices of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeMode {
    /// Several at a time, one in each head and sequence.
    Spread,
    /// One at a time, the same in every head and sequence: heads may be permuted.
    Uniform,
}

/// A rotation that changes at some length.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Switch {
    /// The last length at which the frequencies are those of a short input.
    pub original_length: usize,
    /// The rotation at a few lengths beyond, in rising order.
    pub beyond: Vec<(usize, Rope)>,
}

/// Which pairs follow which stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Streams {
    /// For each stream that rotates any, the number of its pairs.
    pub sections: Vec<usize>,
    /// The pairs of the streams are interleaved, instead of one block each.
    pub interleaved: bool,
    /// The stream of each pair.
    pub owner: Vec<usize>,
}
