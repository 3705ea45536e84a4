//! Models whose nodes are not topologically sorted.

use crate::error::Result;
use crate::graph::{Graph, ScopeKind};
use crate::id::{NodeId, ScopeId, ValueId};
use crate::model::Model;

/// By node: whether it is before a node that it, or one of its bodies, reads.
#[derive(Debug)]
pub(crate) struct Misplaced(Vec<bool>);

impl Misplaced {
    /// Checks every scope, in linear time and without an allocation per node.
    pub(crate) fn of(graph: &Graph) -> Self {
        let mut place = vec![0u32; graph.node_count()];
        for scope in graph.scopes() {
            for (i, id) in graph.scope(scope).nodes().iter().enumerate() {
                place[id.index()] = u32::try_from(i).unwrap_or(u32::MAX);
            }
        }
        let mut misplaced = vec![false; graph.node_count()];
        // The reader, or the node that contains it in the producer's scope, must be later.
        let mut look = |from: ScopeId, reader: Option<NodeId>, value: ValueId| {
            let Some((producer, _)) = graph.producer(value) else {
                return;
            };
            let scope = graph.node(producer).scope;
            let (mut at, mut holder) = (from, reader);
            while at != scope {
                let (ScopeKind::Body(node, _), Some(parent)) =
                    (graph.scope(at).kind(), graph.scope(at).parent())
                else {
                    return;
                };
                (at, holder) = (parent, Some(*node));
            }
            if let Some(holder) = holder
                && place[holder.index()] <= place[producer.index()]
            {
                misplaced[holder.index()] = true;
            }
        };
        for scope in graph.scopes() {
            for id in graph.scope(scope).nodes() {
                for value in graph.node(*id).inputs().iter().flatten() {
                    look(scope, Some(*id), *value);
                }
            }
            for value in graph.scope(scope).outputs() {
                look(scope, None, *value);
            }
        }
        Self(misplaced)
    }

    /// The first misplaced node of a scope, and their number.
    pub(crate) fn within(&self, graph: &Graph, scope: ScopeId) -> Option<(NodeId, usize)> {
        let nodes = graph.scope(scope).nodes().iter();
        let mut misplaced = nodes.filter(|id| self.0[id.index()]);
        let first = *misplaced.next()?;
        Some((first, 1 + misplaced.count()))
    }
}

impl Model {
    /// Sorts the nodes of every graph, body and function topologically, and returns how many came
    /// before a node that they read. The sort is stable, and nodes keep their bytes.
    ///
    /// # Errors
    /// When nodes depend on each other in a cycle; the model is unchanged then.
    pub fn sort(&mut self) -> Result<usize> {
        let graph = &self.graph;
        let misplaced = Misplaced::of(graph);
        let mut sorted = vec![];
        let mut moved = 0;
        for scope in graph.scopes() {
            if let Some((_, count)) = misplaced.within(graph, scope) {
                sorted.push((scope, graph.order(scope)?));
                moved += count;
            }
        }
        for (scope, nodes) in sorted {
            self.graph.scope_mut(scope).set_nodes(nodes);
        }
        if moved > 0 {
            self.graph.revision += 1;
        }
        Ok(moved)
    }
}
