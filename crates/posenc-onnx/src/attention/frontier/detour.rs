//! Detours of a path: heads and tokens are put on one axis, each head is normalized, and the shape
//! comes back.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, NodeId, ValueId};
use rustc_hash::FxHashSet;

use crate::graph::dataflow::{Class, Classes};
use crate::graph::lane::Lane;
use crate::graph::operators::{is_copy, is_elementwise, is_norm, is_reshape};

/// Nodes of a norm in parts are few.
const FEW: usize = 32;

/// A detour, from its end back.
pub(super) struct Detour {
    /// The value that it starts from, which has the shape of its end.
    pub(super) start: ValueId,
    /// The values between, with the axes of heads and tokens, and of the features of one head.
    pub(super) between: Vec<(ValueId, Lane)>,
    /// The nodes that compute these.
    pub(super) nodes: Vec<NodeId>,
}

/// The detour that ends in the output of a reshape whose axes are `lane`.
pub(super) fn detour(
    graph: &Graph,
    classes: &Classes,
    trace: &Trace,
    id: NodeId,
    lane: &Lane,
) -> Option<Detour> {
    let dims = |v: ValueId| trace.get(v).dims.as_deref();
    let content = |v: &ValueId| classes.of_value(*v).has(Class::CONTENT);
    let node = graph.node(id);
    let to = dims(node.output(0).filter(|_| is_reshape(node.op()))?)?;
    let width = lane.width(to)?;
    let mut starts = FxHashSet::default();
    let mut found = Detour {
        start: node.input(0)?,
        between: vec![],
        nodes: vec![],
    };
    let mut seen = FxHashSet::default();
    let mut stack = vec![node.input(0)?];
    while let Some(value) = stack.pop() {
        if !seen.insert(value) {
            continue;
        }
        let own = dims(value)?;
        let rank = own.len();
        // One head each, with whatever numbers a norm takes of it.
        if rank < 2 || own[rank - 1] != width && own[rank - 1] != 1 || seen.len() > FEW {
            return None;
        }
        let lane = Lane {
            feature: Some(rank - 1).filter(|_| own[rank - 1] == width),
            ..Lane::of_sequence(rank - 2)
        };
        found.between.push((value, lane));
        let (maker, _) = graph.producer(value)?;
        found.nodes.push(maker);
        let made = graph.node(maker);
        let inputs = made.inputs().iter().flatten().copied().filter(content);
        if is_reshape(made.op()) {
            let start = made.input(0).filter(|v| dims(*v) == Some(to))?;
            starts.insert(start);
            found.start = start;
        } else if is_norm(made)
            || is_elementwise(made.op())
            || is_copy(made.op())
            || made.op().starts_with("Reduce")
        {
            stack.extend(inputs);
        } else {
            return None;
        }
    }
    (starts.len() == 1).then_some(found)
}
