//! Learned queries, as latents that read a sequence or queries of objects, and what they gather: it
//! stands for no tokens, so that a row of its own is no position.

use posenc_ir::{Graph, NodeId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::reads::reads;
use super::site::Site;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::region;

/// Whether the queries of a site are the same for every input.
pub(crate) fn are_learned(classes: &Classes, site: &Site) -> bool {
    !classes.of_value(site.query.value).has(Class::CONTENT)
}

/// Content that learned queries gathered, and nothing else: values of the main graph.
pub(crate) fn gathered(graph: &Graph, classes: &Classes, sites: &[Site]) -> FxHashSet<ValueId> {
    let mut gathered = FxHashSet::default();
    if !sites.iter().any(|site| are_learned(classes, site)) {
        return gathered;
    }
    // Where keys and values are read, by which queries.
    let mut readers: FxHashMap<NodeId, ValueId> = FxHashMap::default();
    for site in sites {
        let known = reads(graph, classes, std::slice::from_ref(site));
        let products = known.keys_and_values.iter().map(|(node, _)| *node);
        let nodes = products.chain(known.fused.keys().copied());
        readers.extend(nodes.map(|node| (node, site.query.value)));
    }
    let is_content = |v: &ValueId| classes.of_value(*v).has(Class::CONTENT);
    for id in graph.order(graph.main()).unwrap_or_default() {
        let is_gathered = |v: &ValueId| gathered.contains(v);
        let gathers = match readers.get(&id) {
            Some(query) => !is_content(query) || is_gathered(query),
            None => {
                let mut inputs = region::reads(graph, id).into_iter().filter(is_content);
                inputs.all(|v| is_gathered(&v))
            }
        };
        if gathers {
            let outputs = graph.node(id).outputs().iter().flatten().copied();
            gathered.extend(outputs.filter(is_content));
        }
    }
    gathered
}

/// The sites whose queries stand for no tokens, by index.
pub(crate) fn sites(
    classes: &Classes,
    gathered: &FxHashSet<ValueId>,
    sites: &[Site],
) -> Vec<usize> {
    let of_none = |site: &&Site| are_learned(classes, site) || gathered.contains(&site.query.value);
    sites.iter().filter(of_none).map(|s| s.index).collect()
}
