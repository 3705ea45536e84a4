//! Softmaxes over content whose sizes the trial run could not tell: attention may hide there.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Node, NodeId, ValueId};
use rustc_hash::FxHashSet;

use crate::dataflow::{Class, Classes};

/// Those softmaxes.
pub(super) fn softmaxes(graph: &Graph, classes: &Classes, trace: &Trace) -> Vec<NodeId> {
    let lost = |node: &Node| {
        let scores = node.input(0).filter(|_| node.is("Softmax"));
        scores
            .is_some_and(|v| trace.get(v).dims.is_none() && classes.of_value(v).has(Class::CONTENT))
    };
    let all = graph.nodes().filter(|(_, node)| lost(node));
    all.map(|(id, _)| id).collect()
}

/// What to tell a user about them; `None` where there are none.
pub(super) fn warning(graph: &Graph, classes: &Classes, trace: &Trace) -> Option<String> {
    let lost = softmaxes(graph, classes, trace);
    let first = graph.node(*lost.first()?).input(0)?;
    let from = match source(graph, trace, first) {
        Some(id) => format!(
            "the sizes of what {} ({}) gives are unknown",
            graph.place(id),
            graph.node(id).op()
        ),
        None => "their sizes are unknown".to_owned(),
    };
    let (count, them) = match lost.len() {
        1 => ("a softmax".to_owned(), "it"),
        n => (format!("{n} softmaxes"), "them"),
    };
    Some(format!(
        "{count} could not be looked at, attention may be among {them}: {from}"
    ))
}

/// The node before `value` at which sizes are lost first: those of its inputs are known.
fn source(graph: &Graph, trace: &Trace, value: ValueId) -> Option<NodeId> {
    let mut seen = FxHashSet::default();
    let mut at = value;
    while seen.insert(at) {
        let (id, _) = graph.producer(at)?;
        let inputs = graph.node(id).inputs().iter().flatten();
        match inputs.copied().find(|v| trace.get(*v).dims.is_none()) {
            Some(before) => at = before,
            None => return Some(id),
        }
    }
    None
}
