//! Files whose nodes do not stand in an order of computation.

use crate::error::Result;
use crate::graph::{Graph, ScopeKind};
use crate::id::{NodeId, ScopeId, ValueId};
use crate::model::Model;

/// By node: whether it stands before something that it reads, itself or in its bodies.
#[derive(Debug)]
pub(crate) struct Late(Vec<bool>);

impl Late {
    /// Looks at every scope. Linear, and allocates nothing for a node.
    pub(crate) fn of(graph: &Graph) -> Self {
        let mut place = vec![0u32; graph.node_count()];
        for scope in graph.scopes() {
            for (i, id) in graph.scope(scope).nodes().iter().enumerate() {
                place[id.index()] = u32::try_from(i).unwrap_or(u32::MAX);
            }
        }
        let mut late = vec![false; graph.node_count()];
        // The reader, or the node of the producer's scope that holds it, has to stand behind.
        let mut look = |from: ScopeId, reader: Option<NodeId>, value: ValueId| {
            let Some((producer, _)) = graph.producer(value) else {
                return;
            };
            let home = graph.node(producer).scope;
            let (mut at, mut holder) = (from, reader);
            while at != home {
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
                late[holder.index()] = true;
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
        Self(late)
    }

    /// The first late node of a scope, and how many there are.
    pub(crate) fn within(&self, graph: &Graph, scope: ScopeId) -> Option<(NodeId, usize)> {
        let nodes = graph.scope(scope).nodes().iter();
        let mut late = nodes.filter(|id| self.0[id.index()]);
        let first = *late.next()?;
        Some((first, 1 + late.count()))
    }
}

impl Model {
    /// Puts the nodes of every graph, body and function in an order of computation, and returns
    /// how many stood before something that they read. Nodes wait for what they read and
    /// otherwise keep their order, and all of them keep their bytes.
    ///
    /// # Errors
    /// When nodes depend on each other in a circle; then nothing has changed.
    pub fn sort(&mut self) -> Result<usize> {
        let graph = &self.graph;
        let late = Late::of(graph);
        let mut sorted = vec![];
        let mut moved = 0;
        for scope in graph.scopes() {
            if let Some((_, count)) = late.within(graph, scope) {
                sorted.push((scope, graph.order(scope)?));
                moved += count;
            }
        }
        for (scope, nodes) in sorted {
            self.graph.scope_mut(scope).nodes = nodes;
        }
        if moved > 0 {
            self.graph.revision += 1;
        }
        Ok(moved)
    }
}
