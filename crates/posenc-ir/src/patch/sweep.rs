//! Removing nodes and initializers that nothing uses.

use std::collections::BTreeMap;

use crate::graph::{Def, Graph};
use crate::id::{NodeId, ValueId};

impl Graph {
    /// Whether a commit has removed the value.
    pub(crate) fn is_removed_value(&self, value: ValueId) -> bool {
        match self.value(value).def {
            Def::Node(node, _) => self.removed.contains(&node),
            Def::Initializer => self.dropped.contains(&value),
            Def::Input(_) => false,
        }
    }

    /// Removes the nodes and initializers of unused values in `orphans`, and those used only by them.
    pub(super) fn sweep(&mut self, mut orphans: Vec<ValueId>) -> Vec<NodeId> {
        let mut removed = vec![];
        // The number of remaining uses, of values with fewer uses than before.
        let mut left: BTreeMap<ValueId, usize> = BTreeMap::new();
        while let Some(value) = orphans.pop() {
            let v = self.value(value);
            let dead = |value: &ValueId| {
                let v = self.value(*value);
                left.get(value).map_or(v.uses.is_empty(), |n| *n == 0) && !v.is_output
            };
            if !dead(&value) {
                continue;
            }
            match v.def {
                Def::Input(_) => {}
                Def::Initializer => {
                    self.dropped.insert(value);
                }
                Def::Node(node, _) => {
                    if self.node(node).outputs.iter().flatten().all(dead)
                        && !self.removed.contains(&node)
                    {
                        self.remove(node, &mut left, &mut orphans);
                        removed.push(node);
                    }
                }
            }
        }
        for value in left.into_keys() {
            let uses = &mut self.values[value.index()].uses;
            uses.retain(|u| !self.removed.contains(&u.node));
        }
        removed
    }

    /// Removes a node with its bodies, and the uses by them.
    fn remove(
        &mut self,
        node: NodeId,
        left: &mut BTreeMap<ValueId, usize>,
        orphans: &mut Vec<ValueId>,
    ) {
        let mut stack = vec![node];
        while let Some(id) = stack.pop() {
            // A node of a body may be gone already: its uses are counted once.
            if !self.removed.insert(id) {
                continue;
            }
            let node = &self.nodes[id.index()];
            for value in node.inputs.iter().flatten() {
                let uses = left
                    .entry(*value)
                    .or_insert_with(|| self.values[value.index()].uses.len());
                *uses = uses.saturating_sub(1);
                if *uses == 0 {
                    orphans.push(*value);
                }
            }
            for (_, body) in node.indexed_bodies() {
                stack.extend(self.scopes[body.index()].nodes.iter().copied());
            }
        }
    }
}
