//! Values across the borders of control flow: what enters a body and what leaves it.

use posenc_ir::{Graph, Node, NodeId, ScopeId, ScopeKind, Use, ValueId};
use rustc_hash::FxHashSet;

use super::lane::wrap;
use super::operators::may_attend;

/// The node whose body a scope is.
pub(crate) fn holder(graph: &Graph, scope: ScopeId) -> Option<NodeId> {
    match graph.scope(scope).kind() {
        ScopeKind::Body(holder, _) => Some(*holder),
        _ => None,
    }
}

/// A softmax or fused attention in these bodies that is no known site.
pub(crate) fn attention_within(
    graph: &Graph,
    bodies: Vec<ScopeId>,
    known: &FxHashSet<NodeId>,
) -> Option<NodeId> {
    let mut stack = bodies;
    while let Some(body) = stack.pop() {
        for id in graph.scope(body).nodes() {
            let node = graph.node(*id);
            if may_attend(node) && !known.contains(id) {
                return Some(*id);
            }
            stack.extend(node.bodies().map(|b| b.1));
        }
    }
    None
}

/// The outputs of bodies behind the conditions that come first in them.
fn conditions(node: &Node) -> usize {
    usize::from(node.is("Loop"))
}

/// What a value is outside of the body that it enters; `None` where it enters none.
pub(crate) fn outside(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let scope = graph.value(value).scope();
    let node = graph.node(holder(graph, scope)?);
    let inputs = graph.scope(scope).inputs();
    let slot = inputs.iter().position(|v| *v == value)?;
    // The sequence lengths of an early Scan enter no body.
    let is_like = node.is("Loop") || inputs.len() == node.inputs().len();
    is_like.then(|| node.input(slot))?
}

/// What a value is in the bodies of the node that reads it there.
pub(crate) fn inside(graph: &Graph, at: Use) -> Vec<ValueId> {
    let node = graph.node(at.node);
    let bodies = node.bodies().map(|(_, body)| graph.scope(body).inputs());
    let is_like = |own: &&[ValueId]| node.is("Loop") || own.len() == node.inputs().len();
    bodies
        .filter(is_like)
        .filter_map(|own| own.get(at.slot()).copied())
        .collect()
}

/// What an output of a node is in its bodies.
pub(crate) fn results(graph: &Graph, id: NodeId, output: usize) -> Vec<ValueId> {
    let node = graph.node(id);
    let bodies = node.bodies().map(|(_, body)| graph.scope(body).outputs());
    bodies
        .filter_map(|own| own.get(output + conditions(node)).copied())
        .collect()
}

/// What a value is outside of the body that it leaves; `None` where it leaves none.
pub(crate) fn left(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let scope = graph.value(value).scope();
    let node = graph.node(holder(graph, scope)?);
    let outputs = graph.scope(scope).outputs();
    let at = outputs.iter().position(|v| *v == value)?;
    node.outputs()
        .get(at.checked_sub(conditions(node))?)
        .copied()?
}

/// How many inputs of a `Scan` its trips carry; those after them are sliced. Its outputs begin with as
/// many.
pub(crate) fn states(node: &Node) -> usize {
    let sliced = node.int("num_scan_inputs").ok().flatten();
    let sliced = sliced.and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    node.inputs().len().saturating_sub(sliced)
}

/// The axis along which a `Scan` slices an input, counted from the first that is sliced.
pub(crate) fn scan_axis(node: &Node, index: usize, rank: usize) -> usize {
    axis(node, "scan_input_axes", index, rank)
}

/// The axis along which a `Scan` stacks what its trips give, in a value of this rank; counted from the
/// first that is stacked.
pub(crate) fn stacked_axis(node: &Node, index: usize, rank: usize) -> usize {
    axis(node, "scan_output_axes", index, rank)
}

fn axis(node: &Node, name: &str, index: usize, rank: usize) -> usize {
    let axes = node.ints(name).ok().flatten();
    let axis = axes.and_then(|axes| axes.get(index).copied()).unwrap_or(0);
    wrap(axis, rank).unwrap_or(0)
}
