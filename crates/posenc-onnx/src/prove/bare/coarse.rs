//! What rounding to integers leaves open.

use posenc_ir::{Graph, Node};

/// By which share of the largest number tokens may differ in a quantized model, where the weights of
/// attention do not sum to 1, and sums in another order are rounded to another integer.
pub(super) const COARSE: f64 = 0.1;

/// By which share of the largest number the tokens of a model may differ because of integers.
pub(super) fn coarse(graph: &Graph) -> f64 {
    if has_quantized_operators(graph) {
        COARSE
    } else {
        0.0
    }
}

/// Whether a model quantizes anything, be it weights alone: rounding may tell equal tokens apart.
fn has_quantized_operators(graph: &Graph) -> bool {
    let quantized = ["Quantize", "Integer", "QLinear", "QAttention"];
    // The level at which `MatMulNBits` rounds what it multiplies to 8 bits.
    let is_rounded =
        |node: &Node| node.op() == "MatMulNBits" && node.int("accuracy_level") == Ok(Some(4));
    graph
        .nodes()
        .any(|(_, node)| quantized.iter().any(|part| node.op().contains(part)) || is_rounded(node))
}
