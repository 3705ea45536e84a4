//! Lengths that are added up: how many frames of speech each token has.

use posenc_ir::{Graph, Node, NodeId, Use, ValueId};
use rustc_hash::FxHashSet;

use crate::attention::reads::weighted;
use crate::detect::Found;
use crate::graph::dataflow::Class;
use crate::graph::lane::wrap;
use crate::graph::operators::{is_copy, is_layout};

/// Whether a node adds up one number of each token, behind all attention and to be compared with places
/// alone.
pub(super) fn is_length(graph: &Graph, found: &Found, id: NodeId) -> bool {
    let node = graph.node(id);
    let Some(out) = node.output(0).filter(|_| node.is("CumSum")) else {
        return false;
    };
    let dims = found.trace.get(out).dims.as_deref().unwrap_or_default();
    let axis = node
        .input(1)
        .and_then(|axis| found.trace.get(axis).scalar_i64());
    let axis = axis.and_then(|axis| wrap(axis, dims.len()));
    // Not from one sequence of a batch to the next.
    let mut others = dims.iter().enumerate().skip(1);
    let is_single = axis
        .is_some_and(|axis| axis > 0 && others.all(|(other, size)| other == axis || *size == 1))
        || *dims == [found.lengths.sequence];
    is_single && node.scope() == graph.main() && is_compared(graph, found, out)
}

/// Whether a value is only compared, and no attention reads what comes of that.
fn is_compared(graph: &Graph, found: &Found, value: ValueId) -> bool {
    let mut read: FxHashSet<ValueId> = FxHashSet::default();
    for site in &found.attention {
        read.extend([site.query.value, site.key.value]);
        read.extend(site.scores);
        read.extend(weighted(graph, &found.classes, site));
    }
    let mut stack = vec![(value, false)];
    let mut seen: FxHashSet<(ValueId, bool)> = FxHashSet::default();
    while let Some((value, is_behind)) = stack.pop() {
        if !is_behind && graph.value(value).is_output() {
            return false;
        }
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            let ends = compares(graph, found, node, *at);
            // What a body reads may be anywhere in it.
            let is_main = node.scope() == graph.main() && node.bodies().next().is_none();
            if !is_main || !is_behind && !ends && !moves(graph, node, *at) {
                return false;
            }
            let outputs = node.outputs().iter().flatten();
            let next = outputs.map(|out| (*out, is_behind || ends));
            stack.extend(next.filter(|next| seen.insert(*next)));
        }
    }
    !seen.iter().any(|(value, _)| read.contains(value))
}

/// Whether a node compares numbers with places, or counts as many places.
fn compares(graph: &Graph, found: &Found, node: &Node, at: Use) -> bool {
    match node.op() {
        "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual" => {
            let other = node.input(1 - at.slot());
            other.is_some_and(|other| is_place(graph, found, other))
        }
        "Range" => at.slot() == 1,
        _ => false,
    }
}

/// Whether a value has no content, or no more than as many places as content says.
fn is_place(graph: &Graph, found: &Found, value: ValueId) -> bool {
    let mut at = value;
    loop {
        if !found.classes.of_value(at).has(Class::CONTENT) {
            return true;
        }
        let Some((id, _)) = graph.producer(at) else {
            return false;
        };
        let node = graph.node(id);
        let is_constant = |slot: usize| {
            node.input(slot)
                .is_some_and(|v| graph.constant(v).is_some())
        };
        match node.input(0) {
            _ if node.is("Range") => return is_constant(0) && is_constant(2),
            Some(before) if is_layout(node.op()) || is_copy(node.op()) => at = before,
            _ => return false,
        }
    }
}

/// Whether a node moves numbers, leaves some of them out, or puts constants beside them.
fn moves(graph: &Graph, node: &Node, at: Use) -> bool {
    let is_constant = |slot: usize| {
        let value = node.input(slot);
        value.is_none_or(|value| graph.constant(value).is_some())
    };
    let others = (0..node.inputs().len()).filter(|slot| *slot != at.slot());
    match node.op() {
        "Gather" | "Slice" => at.slot() == 0 && others.into_iter().all(is_constant),
        "Concat" => others.into_iter().all(is_constant),
        op => at.slot() == 0 && (is_layout(op) || is_copy(op)),
    }
}
