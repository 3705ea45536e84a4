//! Graphs that take one token at a time: where positions enter is told by what differs from token to token.

use posenc_ir::{Graph, Node, NodeId, ValueId};

use super::met::of_scores;
use crate::attention::{Operand, Site};
use crate::detect::found::Found;
use crate::graph::dataflow::{Class, live};

/// One sentence for the attention in which nothing was found for this reason.
pub(crate) fn unread(graph: &Graph, found: &Found) -> Option<String> {
    let count = |operand: &Operand| {
        let dims = found.trace.get(operand.value).dims.as_deref()?;
        dims.get(operand.lane.sequence).copied()
    };
    let steps = found.ports.has_past() || found.lengths.sequence == 1;
    let own = found.self_attending();
    let is_alone = |site: &Site| {
        // Keys of a cache that was not read as one are those of other tokens.
        let attends_itself = !site.cross || !own.contains(&site.place.stack);
        // A cache of fixed size may have one slot.
        let joins = site.past && site.buffer.is_none();
        let has_more_keys = joins || steps && count(&site.key) != Some(1);
        attends_itself && has_more_keys && count(&site.query) == Some(1)
    };
    let alone = found.attention.iter().filter(|site| is_alone(site));
    let alone: Vec<&Site> = alone.collect();
    let silent = alone.iter().find(|site| !found.has_positions(site.index));
    // A bias on scores says nothing of what is added or rotated besides.
    let node = match (silent, &alone[..]) {
        (Some(site), _) => site.node,
        (None, []) => return None,
        (None, _) => met_elsewhere(graph, found)?,
    };
    Some(format!(
        "{}: the graph takes one token at a time, and which positions its queries have cannot be told from one; \
         export the model for several tokens, or any number",
        graph.place(node)
    ))
}

/// The first node at which numbers that follow positions meet content, and not scores.
fn met_elsewhere(graph: &Graph, found: &Found) -> Option<NodeId> {
    let class = |value: ValueId| found.classes.of_value(value);
    let of_scores = of_scores(graph, &found.classes, &found.attention);
    let live = live(graph);
    let follows =
        |value: ValueId| class(value).has(Class::POSITION) && !class(value).has(Class::CONTENT);
    // Integers are indices, of what is written into a cache too.
    let is_float = |value: ValueId| {
        let dtype = found.trace.get(value).dtype.or(graph.dtype(value));
        dtype.is_some_and(|dtype| dtype.is_float())
    };
    let mut nodes = graph
        .nodes()
        .filter(|(id, _)| live[id.index()] && !of_scores.contains(id));
    let meets = |node: &Node| {
        let mut made = node.outputs().iter().flatten();
        let mut read = node.inputs().iter().flatten();
        let takes_indices = node.op().ends_with("RotaryEmbedding");
        made.any(|value| class(*value).has(Class::CONTENT))
            && read.any(|value| follows(*value) && (takes_indices || is_float(*value)))
    };
    nodes.find(|(_, node)| meets(node)).map(|(id, _)| id)
}
