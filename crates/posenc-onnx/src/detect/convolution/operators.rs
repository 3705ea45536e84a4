//! Convolutions, and what may be between them and a sum.

use posenc_ir::Node;

use crate::detect::runs::Runs;
use crate::graph::operators::{is_elementwise, is_norm, is_rearrangement, is_skip_norm};

/// Nodes between an addition and the input of its convolution: a norm in parts and an activation
/// in parts are few.
pub(super) const FEW: usize = 48;

/// Whether a node adds its first two inputs; norms may do that themselves.
pub(super) fn sums(node: &Node) -> bool {
    node.is("Add") || is_skip_norm(node)
}

/// Whether a node is a convolution, in any type and any order of axes.
pub(super) fn is_convolution(node: &Node) -> bool {
    match node.domain() {
        "" => matches!(node.op(), "Conv" | "ConvInteger" | "QLinearConv"),
        "com.microsoft" => matches!(
            node.op(),
            "FusedConv" | "NhwcConv" | "NhwcFusedConv" | "QLinearConv"
        ),
        _ => false,
    }
}

/// The groups of a convolution.
pub(super) fn groups(node: &Node) -> usize {
    let set = node.int("group").ok().flatten();
    set.and_then(|n| usize::try_from(n).ok()).unwrap_or(1)
}

/// Activations, norms, crops, rounding and changes of shape.
pub(super) fn passes(node: &Node) -> bool {
    let op = node.op();
    match node.domain() {
        "" => {
            is_elementwise(op)
                || op.starts_with("Reduce")
                || is_rearrangement(op)
                || matches!(op, "Expand" | "Slice" | "Pad" | "DynamicQuantizeLinear")
                || matches!(op, "Gelu" | "Elu" | "LeakyRelu" | "Softplus")
                || matches!(op, "HardSwish" | "HardSigmoid" | "Mish" | "Swish" | "Selu")
                || is_norm(node)
        }
        "com.microsoft" => matches!(op, "Gelu" | "FastGelu" | "QuickGelu" | "BiasGelu"),
        _ => false,
    }
}

/// The dimensions of the weight of a convolution.
pub(super) fn weight<'a>(runs: &'a Runs<'_>, node: &Node) -> Option<&'a [usize]> {
    let slot = match node.op() {
        "QLinearConv" => 3,
        _ => 1,
    };
    runs.found.trace.get(node.input(slot)?).dims.as_deref()
}

/// The taps of a convolution, by the dimensions of its weight.
pub(super) fn kernel<'a>(node: &Node, weight: &'a [usize]) -> &'a [usize] {
    match (node.op(), weight) {
        // Channels are last: `[out, taps, …, members]`.
        ("NhwcConv" | "NhwcFusedConv", [_, taps @ .., _]) | (_, [_, _, taps @ ..]) => taps,
        _ => &[],
    }
}
