//! Keys of earlier tokens, which have to be those that attention reads.

use posenc_ir::{Graph, Node, NodeId, ValueId};
use rustc_hash::FxHashSet;

use crate::attention::reads::weighted;
use crate::detect::Found;
use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::graph::operators::{is_copy, is_elementwise, is_layout, written_slots};
use crate::graph::ports::Role;
use crate::plan::swap::SwapPlan;

/// Refuses other keys where those of earlier tokens are joined with new ones at a place that attention
/// does not read, as for an output: the keys would stay as they were there.
pub(super) fn check_caches(before: &Context<'_>, plan: &SwapPlan) -> Result<(), RewriteError> {
    let (graph, found) = (before.graph(), before.found);
    let keys = |site: usize| found.attention.get(site).map(|site| site.key.value);
    let mut read = Cached::default();
    for site in &found.attention {
        read.follow(graph, found, site.key.value);
        for values in weighted(graph, &found.classes, site) {
            read.follow(graph, found, values);
        }
    }
    for keys in plan.sites.iter().filter_map(|site| keys(*site)) {
        let mut own = Cached::default();
        own.follow(graph, found, keys);
        for past in own.inputs {
            let is_elsewhere = |id: &&NodeId| {
                let scope = graph.node(**id).scope();
                let mut joins = own.nodes.iter();
                !read.nodes.contains(*id) && joins.any(|known| graph.node(*known).scope() == scope)
            };
            let joins = joins(graph, found, past);
            if let Some(elsewhere) = joins.iter().find(is_elsewhere) {
                let name = graph.name(past);
                let why = format!(
                    "the keys of {name} are joined with new ones here, where attention does not read \
                     them, so that what is cached may be others than what it reads"
                );
                return Err(before.refuse(*elsewhere, why));
            }
        }
    }
    Ok(())
}

/// What keys are joined from.
#[derive(Default)]
struct Cached {
    /// Inputs of earlier keys.
    inputs: Vec<ValueId>,
    /// The nodes between.
    nodes: FxHashSet<NodeId>,
}

impl Cached {
    fn follow(&mut self, graph: &Graph, found: &Found, keys: ValueId) {
        let is_past = |value: ValueId| {
            let mut ports = found.ports.iter();
            ports.any(|port| port.value == value && port.role == Role::Past)
        };
        let mut stack = vec![keys];
        while let Some(value) = stack.pop() {
            match graph.producer(value) {
                None if is_past(value) => self.inputs.push(value),
                Some((id, _)) if is_passed(graph.node(id)) && self.nodes.insert(id) => {
                    stack.extend(graph.node(id).inputs().iter().flatten());
                }
                _ => {}
            }
        }
    }
}

/// The nodes that join the keys of an input with others, in order of creation.
fn joins(graph: &Graph, found: &Found, past: ValueId) -> Vec<NodeId> {
    let mut stack = vec![past];
    let mut seen = FxHashSet::default();
    let mut joins = vec![];
    while let Some(value) = stack.pop() {
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            let is_new = is_passed(node) && seen.insert(at.node);
            match found.classes.content(node).count() {
                _ if !is_new => {}
                0 | 1 => stack.extend(node.outputs().iter().flatten()),
                _ => joins.push(at.node),
            }
        }
    }
    joins.sort_unstable();
    joins
}

/// Whether a node moves, scales or rotates keys, or puts them beside others.
fn is_passed(node: &Node) -> bool {
    let joins = matches!(node.op(), "Concat" | "Where") || written_slots(node).is_some();
    let moves = is_layout(node.op()) || is_copy(node.op()) || node.is("Slice");
    joins || moves || is_elementwise(node.op())
}
