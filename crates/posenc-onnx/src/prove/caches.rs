//! The outputs that contain caches after a run.

use posenc_ir::{Graph, ValueId};
use rustc_hash::FxHashSet;

use crate::graph::operators::cache_slots;
use crate::graph::ports::{Lengths, Ports};

/// The outputs that contain caches of a window which no tokens fill after a run: the rest is undefined.
pub(super) fn unfilled(graph: &Graph, ports: &Ports, at: Lengths) -> Vec<String> {
    let outputs = ports
        .unfilled(graph, at)
        .filter_map(|port| present(graph, port.value));
    outputs.map(|v| graph.name(v).to_owned()).collect()
}

/// The output of the model that contains the keys or values of a cache after a run.
pub(super) fn present(graph: &Graph, past: ValueId) -> Option<ValueId> {
    let outputs = graph.scope(graph.main()).outputs();
    let mut stack = vec![past];
    let mut seen = FxHashSet::default();
    while let Some(value) = stack.pop() {
        if outputs.contains(&value) {
            return Some(value);
        }
        if !seen.insert(value) {
            continue;
        }
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            // The outputs of an operator of attention end with its caches, in their order.
            let cache = cache_slots(node).iter().position(|slot| *slot == at.slot());
            let next = match (cache, node.op()) {
                (Some(cache), _) => node.output(1 + cache),
                (None, "Concat" | "Identity" | "Cast" | "Transpose" | "Reshape") => node.output(0),
                (None, _) => None,
            };
            stack.extend(next);
        }
    }
    None
}
