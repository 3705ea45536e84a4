//! Tokens that content chose, as many as a sequence has of them: those that are left stand in an order of
//! their own, and whatever gives them a position behind the choice is not followed.

use posenc_ir::{Graph, NodeId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::graph::dataflow::{Class, Classes};
use crate::graph::mixing::Tokens;

/// Nodes to look at between indices and what chooses them.
const NEAR: usize = 64;

/// What is computed from such tokens, with the node that chooses them. A number of tokens that is always the
/// same, as of queries of objects, is no sequence any more.
pub(crate) fn chosen(
    graph: &Graph,
    classes: &Classes,
    tokens: &Tokens,
) -> FxHashMap<ValueId, NodeId> {
    let mut chosen: FxHashMap<ValueId, NodeId> = FxHashMap::default();
    let is_content = |v: &ValueId| classes.of_value(*v).has(Class::CONTENT);
    for id in graph.order(graph.main()).unwrap_or_default() {
        let node = graph.node(id);
        let gathers = matches!(node.op(), "Gather" | "GatherElements" | "GatherND");
        let indices = node.input(1).filter(|v| gathers && is_content(v));
        let own = indices.filter(|v| are_counted(graph, classes, *v));
        let mut content = classes.content(node);
        let by = match own {
            Some(_) => Some(id),
            None => content.find_map(|v| chosen.get(&v).copied()),
        };
        let outputs = node.outputs().iter().flatten();
        let followed = outputs.filter(|v| is_content(v) && !tokens.has_axis(**v));
        chosen.extend(followed.filter_map(|v| Some((*v, by?))));
    }
    chosen
}

/// Whether it depends on the input how many indices there are.
fn are_counted(graph: &Graph, classes: &Classes, indices: ValueId) -> bool {
    let mut stack = vec![indices];
    let mut seen = FxHashSet::default();
    while let Some(value) = stack.pop() {
        if !seen.insert(value) || seen.len() > NEAR {
            continue;
        }
        let Some((id, _)) = graph.producer(value) else {
            continue;
        };
        let node = graph.node(id);
        match node.op() {
            "TopK" => {
                let count = node.input(1).map(|v| classes.of_value(v));
                if count.is_some_and(|count| !count.is_constant()) {
                    return true;
                }
            }
            "NonZero" | "Compress" if classes.content(node).next().is_some() => return true,
            _ => stack.extend(classes.content(node)),
        }
    }
    false
}
