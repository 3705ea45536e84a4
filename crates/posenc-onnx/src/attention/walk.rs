//! Sites in order of computation, through the bodies of control flow.

use std::cmp::Reverse;

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Node, NodeId, ScopeId};

use crate::graph::bodies::{scan_axis, states};
use crate::graph::dataflow::{Class, Classes};

use super::site::Site;

/// A body that runs more often than this counts once: no model has so many layers.
const MOST_RUNS: usize = 1024;

/// What `find` sees in a scope and in the bodies below it.
///
/// Of the branches of an `If` those count with the most sites, or the one `branch`
/// places after it; where fewer contain any, the last that does. A body that runs a constant
/// number of times, each on what the run before gave, counts as often.
pub(crate) fn scope(
    graph: &Graph,
    classes: &Classes,
    trace: &Trace,
    branch: usize,
    find: &dyn Fn(NodeId) -> Option<Site>,
) -> Vec<Site> {
    /// A scope being visited.
    struct Frame {
        nodes: Vec<NodeId>,
        at: usize,
        sites: Vec<Site>,
        /// The node whose body this is.
        holder: Option<NodeId>,
    }
    let frame = |id: ScopeId, holder: Option<NodeId>| Frame {
        nodes: graph.order(id).unwrap_or_default(),
        at: 0,
        sites: vec![],
        holder,
    };
    let mut stack = vec![frame(graph.main(), None)];
    // The sites of the bodies visited so far, by node.
    let mut bodies: Vec<(NodeId, Vec<Vec<Site>>)> = vec![];
    loop {
        let Some(top) = stack.last_mut() else {
            return vec![];
        };
        let Some(node) = top.nodes.get(top.at).copied() else {
            let sites = std::mem::take(&mut top.sites);
            let Some(holder) = top.holder else {
                return sites;
            };
            stack.pop();
            let Some((_, done)) = bodies.last_mut() else {
                return sites;
            };
            done.push(sites);
            if done.len() == graph.node(holder).bodies().count()
                && let (Some((_, done)), Some(top)) = (bodies.pop(), stack.last_mut())
            {
                top.sites
                    .extend(together(graph.node(holder), (classes, trace), branch, done));
            }
            continue;
        };
        top.at += 1;
        let inner: Vec<ScopeId> = graph.node(node).bodies().map(|b| b.1).collect();
        if inner.is_empty() {
            top.sites.extend(find(node));
            continue;
        }
        bodies.push((node, vec![]));
        // The last pushed is walked first.
        stack.extend(inner.into_iter().rev().map(|id| frame(id, Some(node))));
    }
}

/// The sites of a node with bodies.
fn together(
    node: &Node,
    (classes, trace): (&Classes, &Trace),
    branch: usize,
    mut bodies: Vec<Vec<Site>>,
) -> Vec<Site> {
    bodies.retain(|sites| !sites.is_empty());
    // Of bodies with as many sites the first is first.
    bodies.sort_by_key(|sites| Reverse(sites.len()));
    bodies.truncate(branch + 1);
    let sites = bodies.pop().unwrap_or_default();
    let runs = match node.op() {
        _ if !carries(node, classes) => None,
        "Scan" => scanned(node, trace),
        "Loop" => node
            .input(0)
            .and_then(|v| trace.get(v).scalar_i64())
            .and_then(|n| usize::try_from(n).ok()),
        _ => None,
    };
    let runs = runs.filter(|n| (1..=MOST_RUNS).contains(n)).unwrap_or(1);
    (0..runs).flat_map(|_| sites.iter().cloned()).collect()
}

/// Whether each run of a body begins with content of the run before, as layers do. A `Scan` may slice content of this
/// run instead, by sequences or tokens; weights and caches are sliced by layers.
fn carries(node: &Node, classes: &Classes) -> bool {
    let (first, end) = match node.op() {
        "Scan" => (0, states(node)),
        _ => (2, node.inputs().len()),
    };
    let has = |slot: usize, class: Class| {
        let value = node.input(slot);
        value.is_some_and(|v| classes.of_value(v).has(class))
    };
    let slices = (end..node.inputs().len()).any(|slot| has(slot, Class::FRESH));
    (first..end).any(|slot| has(slot, Class::CONTENT)) && !slices
}

/// The length of what a `Scan` runs along.
fn scanned(node: &Node, trace: &Trace) -> Option<usize> {
    let dims = trace.get(node.input(states(node))?).dims.as_ref()?;
    dims.get(scan_axis(node, 0, dims.len())).copied()
}
