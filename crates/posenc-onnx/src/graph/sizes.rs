//! Values that follow from sizes.

use posenc_ir::{Graph, Node, ValueId};
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
    let passes = |node: &Node| node.bodies().next().is_none() && !is_random(node);
    is_of(graph, value, may_read, passes)
}

/// Whether a value is computed from constants and sizes by these operators alone.
pub(crate) fn is_of_sizes_by(
    graph: &Graph,
    value: ValueId,
    passes: impl Fn(&Node) -> bool,
) -> bool {
    is_of(graph, value, |_| false, passes)
}

fn is_of(
    graph: &Graph,
    value: ValueId,
    may_read: impl Fn(ValueId) -> bool,
    passes: impl Fn(&Node) -> bool,
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
        if matches!(node.op(), "Shape" | "Size") {
            continue;
        }
        if !passes(node) {
            return false;
        }
        stack.extend(node.inputs().iter().flatten());
    }
    true
}
