//! Pairs of nodes of two models.

use crate::graph::Graph;
use crate::id::{NodeId, ValueId};

/// Pairs of corresponding nodes, by index.
#[derive(Clone, Debug)]
pub(super) struct Pairs {
    of: [Vec<Option<NodeId>>; 2],
}

impl Pairs {
    /// No pairs, for these numbers of nodes.
    pub(super) fn new(counts: [usize; 2]) -> Self {
        Self {
            of: counts.map(|count| vec![None; count]),
        }
    }

    pub(super) fn add(&mut self, a: NodeId, b: NodeId) {
        self.of[0][a.index()] = Some(b);
        self.of[1][b.index()] = Some(a);
    }

    /// The partner of a node of side 0 or 1.
    pub(super) fn partner(&self, side: usize, node: NodeId) -> Option<NodeId> {
        self.of[side][node.index()]
    }
}

/// The node that computes a value.
pub(super) fn producer(graph: &Graph, value: ValueId) -> Option<NodeId> {
    graph.producer(value).map(|(node, _)| node)
}
