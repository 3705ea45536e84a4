//! Names of nodes, which runtimes accept once in a graph.

use rustc_hash::FxHashSet;

use crate::graph::Graph;
use crate::id::NodeId;

impl Graph {
    /// Takes the name from each node whose graph has an earlier node of that name.
    pub(super) fn take_repeated_names(&mut self) {
        let mut repeated: Vec<NodeId> = vec![];
        for scope in self.scopes() {
            let mut seen = FxHashSet::default();
            let nodes = self.scope(scope).nodes.iter().copied();
            repeated.extend(nodes.filter(|id| {
                let name = self.node(*id).name();
                !name.is_empty() && !seen.insert(name)
            }));
        }
        for id in repeated {
            self.node_mut(id).name = "".into();
            self.edited.insert(id);
        }
    }
}
