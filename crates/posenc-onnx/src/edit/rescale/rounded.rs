//! Integers that numbers of rotations are rounded to.

use posenc_ir::{Graph, NodeId, ValueId};
use rustc_hash::FxHashSet;

use crate::graph::operators::{is_copy, is_elementwise, is_layout};
use crate::graph::region::Region;

/// The first rounding within a rotation, or of what it reads.
pub(crate) fn within(graph: &Graph, region: &Region) -> Option<NodeId> {
    let mut stack = vec![region.output];
    let mut seen = FxHashSet::default();
    while let Some(value) = stack.pop() {
        let Some((id, _)) = graph.producer(value).filter(|_| value != region.input) else {
            continue;
        };
        if graph.node(id).is("QuantizeLinear") {
            return Some(id);
        }
        if seen.insert(id) {
            stack.extend(graph.node(id).inputs().iter().flatten());
        }
    }
    None
}

/// The first rounding of rotated numbers on the way to their product. Its range is constant.
pub(crate) fn behind(graph: &Graph, rotated: ValueId) -> Option<NodeId> {
    let mut stack = vec![rotated];
    let mut seen = FxHashSet::default();
    while let Some(value) = stack.pop() {
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            if node.is("QuantizeLinear") && at.slot() == 0 {
                return Some(at.node);
            }
            let op = node.op();
            let passes = is_layout(op) || is_copy(op) || is_elementwise(op) || op == "Concat";
            if passes && seen.insert(at.node) {
                stack.extend(node.outputs().iter().flatten());
            }
        }
    }
    None
}
