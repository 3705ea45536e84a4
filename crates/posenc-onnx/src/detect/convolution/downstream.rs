//! The attention behind nodes.

use std::collections::BTreeSet;
use std::rc::Rc;

use posenc_ir::{Graph, NodeId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::detect::runs::Runs;

/// The attention sites that the outputs of nodes flow into.
pub(super) struct Downstream {
    sites: FxHashMap<NodeId, Vec<usize>>,
    /// By node, as far as computed.
    known: FxHashMap<NodeId, Rc<BTreeSet<usize>>>,
}

impl Downstream {
    pub(super) fn of(runs: &Runs<'_>) -> Self {
        let mut sites: FxHashMap<NodeId, Vec<usize>> = FxHashMap::default();
        for (place, site) in runs.found.attention.iter().enumerate() {
            sites.entry(site.node).or_default().push(place);
        }
        Self {
            sites,
            known: FxHashMap::default(),
        }
    }

    /// The sites after a node. The walk ends at nodes whose sites are known, so that it is cheapest to
    /// begin with the last nodes.
    pub(super) fn sites(&mut self, graph: &Graph, from: NodeId) -> Rc<BTreeSet<usize>> {
        if let Some(known) = self.known.get(&from) {
            return known.clone();
        }
        let mut all: Rc<BTreeSet<usize>> = Rc::default();
        let mut seen = FxHashSet::from_iter([from]);
        let mut stack = vec![from];
        while let Some(id) = stack.pop() {
            if let Some(known) = self.known.get(&id) {
                if all.is_empty() {
                    all = known.clone();
                } else if !known.is_subset(&all) {
                    Rc::make_mut(&mut all).extend(known.iter());
                }
                continue;
            }
            if let Some(sites) = self.sites.get(&id) {
                Rc::make_mut(&mut all).extend(sites);
            }
            for value in graph.node(id).outputs().iter().flatten() {
                let readers = graph.uses(*value).iter().map(|u| u.node);
                stack.extend(readers.filter(|n| seen.insert(*n)));
            }
        }
        self.known.insert(from, all.clone());
        all
    }
}
