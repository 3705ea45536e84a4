//! Topological order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::id::{NodeId, ScopeId, ValueId};

impl Graph {
    /// The nodes of a scope in topological order: each after the nodes whose outputs it or its
    /// bodies read. The order is stable, and that of the file where it is topological.
    ///
    /// # Errors
    /// When nodes depend on each other in a cycle; the error names one of them.
    pub fn order(&self, scope: ScopeId) -> Result<Vec<NodeId>> {
        let of = self.scope(scope);
        if *of.in_order.get_or_init(|| is_in_order(self, scope)) {
            Ok(of.nodes.clone())
        } else {
            sorted(self, scope)
        }
    }
}

/// Whether every node of a scope is after the nodes that it reads.
pub(crate) fn is_in_order(graph: &Graph, scope: ScopeId) -> bool {
    let nodes = &graph.scope(scope).nodes;
    // Handles of one scope are consecutive except for new nodes.
    let indices = || nodes.iter().map(|id| id.index());
    let (Some(first), Some(last)) = (indices().min(), indices().max()) else {
        return true;
    };
    let mut done = vec![false; last - first + 1];
    nodes.iter().all(|id| {
        let ready = |v: ValueId| match graph.producer(v) {
            Some((n, _)) => {
                let at = n.index().checked_sub(first).and_then(|i| done.get(i));
                graph.node(n).scope != scope || at.is_none_or(|done| *done)
            }
            None => true,
        };
        let node = graph.node(*id);
        let is_ready = if node.indexed_bodies().is_empty() {
            node.inputs.iter().flatten().all(|v| ready(*v))
        } else {
            reads(graph, *id).into_iter().all(ready)
        };
        done[id.index() - first] = true;
        is_ready
    })
}

fn sorted(graph: &Graph, scope: ScopeId) -> Result<Vec<NodeId>> {
    let nodes = &graph.scope(scope).nodes;
    let place: FxHashMap<NodeId, usize> = nodes.iter().enumerate().map(|(i, n)| (*n, i)).collect();
    let mut waits = vec![0usize; nodes.len()];
    let mut feeds: Vec<Vec<usize>> = vec![vec![]; nodes.len()];
    for (i, id) in nodes.iter().enumerate() {
        for value in reads(graph, *id) {
            let Some((producer, _)) = graph.producer(value) else {
                continue;
            };
            if let Some(from) = place.get(&producer) {
                feeds[*from].push(i);
                waits[i] += 1;
            }
        }
    }
    let mut ready: BinaryHeap<Reverse<usize>> = waits
        .iter()
        .enumerate()
        .filter(|(_, n)| **n == 0)
        .map(|(i, _)| Reverse(i))
        .collect();
    let mut out = Vec::with_capacity(nodes.len());
    while let Some(Reverse(i)) = ready.pop() {
        out.push(nodes[i]);
        for next in &feeds[i] {
            waits[*next] -= 1;
            if waits[*next] == 0 {
                ready.push(Reverse(*next));
            }
        }
    }
    match waits.iter().position(|n| *n > 0) {
        None => Ok(out),
        Some(i) => {
            Err(Error::invalid("the node depends on its own output").at(graph.place(nodes[i])))
        }
    }
}

/// The values that a node reads, with those that its bodies read.
pub(crate) fn reads(graph: &Graph, id: NodeId) -> Vec<ValueId> {
    let mut out = vec![];
    let mut stack = vec![id];
    while let Some(id) = stack.pop() {
        let node = graph.node(id);
        out.extend(node.inputs().iter().flatten());
        for (_, body) in node.indexed_bodies() {
            let body = graph.scope(*body);
            out.extend(body.outputs());
            stack.extend(body.nodes());
        }
    }
    out
}

/// The values that a node reads, with the captures of its bodies but not their own values; and all
/// bodies in it.
pub(crate) fn outer_reads(graph: &Graph, id: NodeId) -> (Vec<ValueId>, Vec<ScopeId>) {
    let mut bodies = vec![];
    let mut stack = vec![id];
    while let Some(id) = stack.pop() {
        for (_, body) in graph.node(id).indexed_bodies() {
            bodies.push(*body);
            stack.extend(graph.scope(*body).nodes());
        }
    }
    let mut values = reads(graph, id);
    if !bodies.is_empty() {
        values.retain(|v| !bodies.contains(&graph.value(*v).scope));
    }
    (values, bodies)
}
