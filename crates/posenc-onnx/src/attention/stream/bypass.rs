//! Content that reaches a residual stream past the value where it was thought to begin.

use posenc_ir::{Graph, NodeId, Use, ValueId};
use rustc_hash::FxHashSet;

use super::{ends, operands};
use crate::attention::site::Site;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::operators::{is_copy, is_layout, is_projection};
use crate::graph::region::shape_only;

/// A node through which the inputs that `begin` is computed from reach queries and keys of these sites
/// otherwise than through `begin`; `None` where there is none. Paths through attention to other tokens do
/// not count.
pub(crate) fn bypass<'a>(
    graph: &Graph,
    classes: &Classes,
    sites: impl IntoIterator<Item = &'a Site>,
    begin: ValueId,
) -> Option<NodeId> {
    let walk = |from: Vec<ValueId>, past: Option<ValueId>| {
        let mut stack = from;
        let mut seen: FxHashSet<ValueId> = past.into_iter().collect();
        let mut ways = vec![];
        while let Some(value) = stack.pop() {
            if !seen.insert(value) {
                continue;
            }
            let Some((id, _)) = graph.producer(value) else {
                continue;
            };
            let node = graph.node(id);
            let content: Vec<ValueId> = classes.content(node).collect();
            if ends(node) || is_projection(node) && content.len() > 1 {
                continue;
            }
            let given = |v: &&ValueId| graph.producer(**v).is_none();
            ways.extend(content.iter().find(given).map(|v| (*v, id)));
            stack.extend(content);
        }
        ways
    };
    let inputs: FxHashSet<ValueId> = walk(vec![begin], None).iter().map(|(v, _)| *v).collect();
    let read = sites
        .into_iter()
        .flat_map(|site| operands(classes, site).map(|o| o.value));
    let ways = walk(read.collect(), Some(begin));
    let mut ways = ways.into_iter().filter(|(v, _)| inputs.contains(v));
    ways.next().map(|(_, id)| id)
}

/// A node that reads content from before the place where an encoding is added to it, so that it has
/// content without the encoding; `None` where there is none. Content is followed back as long as one
/// value alone makes the next.
pub(crate) fn around(graph: &Graph, classes: &Classes, entry: Use) -> Option<NodeId> {
    let content = |v: &ValueId| classes.of_value(*v).has(Class::CONTENT);
    let mut reader = entry.node;
    loop {
        let mut inputs = classes.content(graph.node(reader));
        let (Some(value), None) = (inputs.next(), inputs.next()) else {
            return None;
        };
        // Tokens pick the first content of a stream, and are none themselves.
        let node = graph.node(reader);
        if node.op().starts_with("Gather") && node.input(0) != Some(value) {
            return None;
        }
        let reads = |at: &&Use| {
            let outputs = graph.node(at.node).outputs().iter().flatten();
            at.node != reader
                && !reads_shape_alone(graph, at.node)
                && outputs.into_iter().any(content)
        };
        if let Some(other) = graph.uses(value).iter().find(reads) {
            return Some(other.node);
        }
        (reader, _) = graph.producer(value)?;
    }
}

/// Whether a node reads the shape of its input, or moves or picks elements of which the shape alone is read.
fn reads_shape_alone(graph: &Graph, id: NodeId) -> bool {
    let (mut stack, mut seen) = (vec![id], FxHashSet::default());
    while let Some(id) = stack.pop() {
        if shape_only(graph, id) || !seen.insert(id) {
            continue;
        }
        let node = graph.node(id);
        let op = node.op();
        let moves = is_copy(op) || is_layout(op) || matches!(op, "Gather" | "Slice");
        let outputs = || node.outputs().iter().flatten();
        if !node.domain().is_empty() || !moves || outputs().any(|v| graph.value(*v).is_output()) {
            return false;
        }
        stack.extend(outputs().flat_map(|v| graph.uses(*v)).map(|at| at.node));
    }
    true
}
