//! Values in which tokens of equal content differ for another reason than position.

use posenc_ir::{Graph, NodeId, ValueId};
use rustc_hash::FxHashSet;

use crate::detect::Found;
use crate::graph::mixing::Mixing;
use crate::graph::operators::is_random;
use crate::graph::region::reads;

/// What is computed from borders that are filled up, from recurrences, or from random numbers.
pub(super) fn uneven(graph: &Graph, found: &Found) -> FxHashSet<ValueId> {
    let recurrent = found
        .mixers
        .iter()
        .filter(|m| m.mixing == Mixing::Recurrence);
    let recurrent: FxHashSet<NodeId> = recurrent.map(|m| m.node).collect();
    after(graph, |id| begins(graph, found, &recurrent, id))
}

/// What is computed from nodes, those included.
pub(super) fn after(graph: &Graph, begins: impl Fn(NodeId) -> bool) -> FxHashSet<ValueId> {
    let mut after = FxHashSet::default();
    for id in graph.order(graph.main()).unwrap_or_default() {
        if begins(id) || reads(graph, id).iter().any(|v| after.contains(v)) {
            after.extend(graph.node(id).outputs().iter().flatten().copied());
        }
    }
    after
}

/// Whether a node makes tokens of equal content differ.
fn begins(graph: &Graph, found: &Found, recurrent: &FxHashSet<NodeId>, id: NodeId) -> bool {
    let node = graph.node(id);
    if recurrent.contains(&id) || is_random(node) {
        return true;
    }
    if !node
        .outputs()
        .iter()
        .flatten()
        .any(|out| found.is_content(*out))
    {
        return false;
    }
    match node.op() {
        "If" => {
            let by_content = node.input(0).is_some_and(|v| found.is_content(v));
            let mut nodes = node
                .bodies()
                .flat_map(|(_, body)| graph.scope(body).nodes());
            by_content || nodes.any(|id| begins(graph, found, recurrent, *id))
        }
        // What other bodies do is not followed here.
        _ if node.bodies().next().is_some() => true,
        "Pad" => node.input(0).is_some_and(|v| found.is_content(v)),
        "CumSum" | "LSTM" | "GRU" | "RNN" => true,
        // The padding of a maximum is no number.
        "MaxPool" => false,
        _ => {
            let pads = node.ints("pads").ok().flatten().unwrap_or_default();
            let auto = node.string("auto_pad").ok().flatten();
            pads.iter().any(|n| *n != 0) || auto.is_some_and(|auto| auto.starts_with("SAME"))
        }
    }
}
