//! What the changed frequencies reach besides the rotations that they were changed for.

use posenc_ir::{Graph, NodeId, ScopeKind, ValueId};
use rustc_hash::FxHashSet;

use crate::graph::dataflow::{Class, Classes};
use crate::graph::region::shape_only;

/// Values that changed, and the nodes that were added.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touched {
    pub(crate) values: Vec<ValueId>,
    pub(crate) nodes: Vec<NodeId>,
}

/// The first place, where it is a node, at which changed values meet content in no node of `meant`, or
/// leave the graph.
pub(crate) fn elsewhere(
    graph: &Graph,
    classes: &Classes,
    touched: &Touched,
    meant: &FxHashSet<NodeId>,
) -> Option<Elsewhere> {
    let content = |v: ValueId| classes.of_value(v).has(Class::CONTENT);
    let mut stack: Vec<ValueId> = touched.values.clone();
    let made = touched.nodes.iter();
    stack.extend(made.flat_map(|id| graph.node(*id).outputs().iter().flatten()));
    let mut seen = FxHashSet::default();
    while let Some(value) = stack.pop() {
        if content(value) || !seen.insert(value) {
            continue;
        }
        for at in graph.uses(value) {
            let id = at.node;
            let outputs = graph.node(id).outputs();
            let is_meant = meant.contains(&id) || touched.nodes.contains(&id);
            if is_meant || shape_only(graph, id) || graph.node(id).bodies().next().is_some() {
                continue;
            }
            if outputs.iter().flatten().any(|out| content(*out)) {
                return Some(Elsewhere::Node(id));
            }
            stack.extend(outputs.iter().flatten());
        }
        let scope = graph.value(value).scope();
        let places = graph.scope(scope).outputs().iter().enumerate();
        for (place, _) in places.filter(|(_, out)| **out == value) {
            match graph.scope(scope).kind() {
                ScopeKind::Body(holder, _) => {
                    let holder = graph.node(*holder);
                    let outputs = holder.outputs().iter();
                    let all = !holder.is("If");
                    let own = outputs.enumerate().filter(|(i, _)| all || *i == place);
                    stack.extend(own.filter_map(|(_, out)| *out));
                }
                _ => return Some(Elsewhere::Output(value)),
            }
        }
    }
    None
}

/// Where changed values arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elsewhere {
    Node(NodeId),
    Output(ValueId),
}
