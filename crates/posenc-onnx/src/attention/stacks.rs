//! Encoder and decoder in one model: the stack of each site, and its layer there.

use posenc_ir::{Graph, NodeId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::site::{Site, StackLayer};
use posenc_encodings::kind::Stack;

/// Assigns a stack to each site: what keys of cross-attention are computed from is the encoder.
pub(crate) fn assign(graph: &Graph, sites: &mut [Site]) {
    let encoder = ancestors_of_cross_keys(graph, sites);
    let mut next: FxHashMap<Option<Stack>, usize> = FxHashMap::default();
    for site in sites {
        let stack = match (encoder.is_empty(), encoder.contains(&site.node)) {
            (true, _) => None,
            (false, true) => Some(Stack::Encoder),
            (false, false) => Some(Stack::Decoder),
        };
        let next = next.entry(stack).or_default();
        let layer = if site.cross {
            next.saturating_sub(1)
        } else {
            *next
        };
        *next = (*next).max(layer + 1);
        site.place = StackLayer { stack, layer };
    }
}

/// The sites that a key of cross-attention depends on.
fn ancestors_of_cross_keys(graph: &Graph, sites: &[Site]) -> FxHashSet<NodeId> {
    let nodes: FxHashSet<NodeId> = sites.iter().map(|s| s.node).collect();
    let cross = sites.iter().filter(|s| s.cross);
    let mut stack: Vec<ValueId> = cross.map(|s| s.key.value).collect();
    let mut seen = FxHashSet::default();
    let mut found = FxHashSet::default();
    while let Some(value) = stack.pop() {
        let Some((id, _)) = graph.producer(value) else {
            continue;
        };
        if crate::graph::region::shape_only(graph, id) || !seen.insert(id) {
            continue;
        }
        if nodes.contains(&id) {
            found.insert(id);
        }
        stack.extend(crate::graph::region::reads(graph, id));
    }
    // A site is of the encoder only where it attends to itself.
    let itself = |s: &&Site| !s.cross && found.contains(&s.node);
    sites.iter().filter(itself).map(|s| s.node).collect()
}
