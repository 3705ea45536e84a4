//! Values that follow from sizes.

use posenc_ir::{Graph, ValueId};
use rustc_hash::FxHashSet;

use crate::graph::operators::is_random;

/// Whether a value is computed from constants and sizes alone.
pub(crate) fn is_of_sizes(graph: &Graph, value: ValueId) -> bool {
    is_of_sizes_and(graph, value, |_| false)
}

/// The same where some values may be read too.
pub(crate) fn is_of_sizes_and(
    graph: &Graph,
    value: ValueId,
    may_read: impl Fn(ValueId) -> bool,
) -> bool {
    let mut stack = vec![value];
    let mut seen = FxHashSet::default();
    while let Some(value) = stack.pop() {
        if !seen.insert(value) || graph.stored(value).is_some() || may_read(value) {
            continue;
        }
        let Some((id, _)) = graph.producer(value) else {
            return false;
        };
        let node = graph.node(id);
        if node.bodies().next().is_some() || is_random(node) {
            return false;
        }
        if !matches!(node.op(), "Shape" | "Size") {
            stack.extend(node.inputs().iter().flatten());
        }
    }
    true
}
