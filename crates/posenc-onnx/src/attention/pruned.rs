//! Tokens that content chose, as many as a sequence has of them: those that are left stand in an order of
//! their own, and whatever gives them a position behind the choice is not followed.

use posenc_ir::{Graph, NodeId, ValueId};
use rustc_hash::FxHashSet;

use super::site::Site;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::mixing::Tokens;

/// Nodes to look at between indices and what chooses them.
const NEAR: usize = 64;

/// The node that chooses the tokens which the keys of a site stand for; `None` where none does, or where
/// it chooses a number of them that is always the same.
pub(crate) fn chosen(
    (graph, classes): (&Graph, &Classes),
    tokens: &Tokens,
    site: &Site,
) -> Option<NodeId> {
    let mut stack = vec![site.key.value];
    let mut seen = FxHashSet::default();
    while let Some(value) = stack.pop() {
        if tokens.has_axis(value) || !seen.insert(value) {
            continue;
        }
        let Some((id, _)) = graph.producer(value) else {
            continue;
        };
        let node = graph.node(id);
        let gathers = matches!(node.op(), "Gather" | "GatherElements" | "GatherND");
        let indices = node.input(1).filter(|_| gathers);
        let is_content = |v: ValueId| classes.of_value(v).has(Class::CONTENT);
        if indices.is_some_and(|v| is_content(v) && are_counted(graph, classes, v)) {
            return Some(id);
        }
        stack.extend(classes.content(node));
    }
    None
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
