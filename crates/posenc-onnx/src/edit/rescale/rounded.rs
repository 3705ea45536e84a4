//! Integers that numbers of rotations are rounded to.

use posenc_ir::{Graph, NodeId, Use, ValueId};
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

/// Where numbers are rounded to integers of a constant range: a scale, and where it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    pub(crate) value: ValueId,
    pub(crate) at: Use,
}

/// The scales by which a value, and what follows from it up to the next product or softmax, is rounded to
/// integers and back.
///
/// # Errors
/// With a node whose range is not constant, or that reads the integers in another way.
pub(crate) fn behind(graph: &Graph, value: ValueId) -> Result<Vec<Scale>, NodeId> {
    let mut stack = vec![(value, false)];
    let mut seen = FxHashSet::default();
    let mut scales = vec![];
    while let Some((value, is_integers)) = stack.pop() {
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            let op = node.op();
            // Integers beside these may have been rounded by another scale.
            let joins = op == "Concat" && !is_integers;
            let moves = is_layout(op) || is_copy(op) || joins;
            let is_integers = match op {
                "QuantizeLinear" | "DequantizeLinear" if at.slot() == 0 => {
                    let scale = node.input(1).filter(|v| graph.constant(*v).is_some());
                    scales.push(Scale {
                        value: scale.ok_or(at.node)?,
                        at: Use::new(at.node, 1),
                    });
                    op == "QuantizeLinear"
                }
                _ if moves => is_integers,
                _ if is_integers => return Err(at.node),
                _ if is_elementwise(op) => false,
                _ => continue,
            };
            if seen.insert(at.node) {
                let outputs = node.outputs().iter().flatten();
                stack.extend(outputs.map(|output| (*output, is_integers)));
            }
        }
    }
    Ok(scales)
}
