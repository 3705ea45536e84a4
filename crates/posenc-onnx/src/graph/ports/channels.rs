//! Sizes of inputs that weights or windows fix, whatever symbol they are declared with.

use posenc_ir::{Dim, Graph, Node, Use};

use super::{Port, Role};
use crate::graph::operators::{cache_slots, is_copy};

/// The axis of tokens of a cache.
pub(super) const TOKENS: usize = 2;

/// Nodes between an input and the first weight that it meets are few.
const FEW: usize = 32;

/// The open axis of an input that the weights of the first operator after it fix, and its size: the
/// channels of a convolution, or the features of a projection. Of a cache that holds a window of tokens, the tokens.
pub(super) fn fixed(graph: &Graph, port: &Port) -> Option<(usize, usize)> {
    if port.role == Role::Past {
        let is_open = !matches!(port.dims.get(TOKENS)?, Dim::Known(_));
        return Some((TOKENS, window(graph, port).filter(|_| is_open)?));
    }
    if port.role != Role::Content || port.dims.len() < 2 {
        return None;
    }
    let mut stack = vec![port.value];
    let mut seen = rustc_hash::FxHashSet::default();
    let mut found: Option<(usize, usize)> = None;
    while let Some(value) = stack.pop() {
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            if let Some(fixed) = needed(graph, node, at.slot(), port.dims.len()) {
                if found.is_some_and(|other| other != fixed) {
                    return None;
                }
                found = Some(fixed);
            } else if passes(node, at.slot()) && seen.len() < FEW && seen.insert(at.node) {
                stack.extend(node.output(0));
            }
        }
    }
    found.filter(|(axis, _)| !matches!(port.dims[*axis], Dim::Known(_)))
}

/// The tokens of the window that a cache holds, in which the newest take the places of the oldest.
pub(super) fn window(graph: &Graph, port: &Port) -> Option<usize> {
    let window = |at: &Use| {
        let node = graph.node(at.node);
        let int = |name: &str| node.int(name).ok().flatten();
        let is_cache = cache_slots(node).contains(&at.slot());
        let wraps = is_cache && int("sliding_window_cache") == Some(1);
        usize::try_from(int("local_window_size").filter(|_| wraps)?).ok()
    };
    graph.uses(port.value).iter().filter_map(window).max()
}

/// The axis of an operand whose size an operator takes from its weights.
fn needed(graph: &Graph, node: &Node, slot: usize, rank: usize) -> Option<(usize, usize)> {
    let weights = |at: usize| -> Option<&[usize]> { Some(&graph.stored(node.input(at)?)?.dims) };
    if !node.domain().is_empty() || slot != 0 {
        return None;
    }
    let at = match node.op() {
        "QLinearConv" | "QLinearMatMul" => 3,
        _ => 1,
    };
    match node.op() {
        "Conv" | "ConvInteger" | "QLinearConv" => {
            let groups = usize::try_from(node.int("group").ok()?.unwrap_or(1)).ok()?;
            let dims = weights(at).filter(|dims| dims.len() == rank)?;
            Some((1, dims[1].checked_mul(groups)?))
        }
        "MatMul" | "MatMulInteger" | "QLinearMatMul" => match weights(at)? {
            [rows, _] => Some((rank - 1, *rows)),
            _ => None,
        },
        _ => None,
    }
}

/// Whether the first result of an operator has the shape of what it reads here.
fn passes(node: &Node, slot: usize) -> bool {
    let quantizes = [
        "QuantizeLinear",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
    ];
    let op = node.op();
    node.domain().is_empty() && slot == 0 && (is_copy(op) || quantizes.contains(&op))
}
