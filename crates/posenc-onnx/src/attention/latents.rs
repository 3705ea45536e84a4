//! Learned queries, as latents that read a sequence or queries of objects, and what they gather: it
//! stands for no tokens, so that a row of its own is no position.

use ndarray::Axis;
use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Node, NodeId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::reads::reads;
use super::site::Site;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::lane::wrap;
use crate::graph::mixing::Tokens;
use crate::graph::operators::{is_elementwise, is_product};
use crate::graph::region;

/// Whether the queries of a site are the same for every input.
pub(crate) fn are_learned(classes: &Classes, site: &Site) -> bool {
    !classes.of_value(site.query.value).has(Class::CONTENT)
}

/// Whether the queries of a site are learned, and not all the same.
pub(crate) fn are_told_apart(classes: &Classes, trace: &Trace, site: &Site) -> bool {
    let query = site.query;
    let rows = trace.get(query.value).to_f64();
    let same = rows.is_some_and(|rows| {
        let mut rows = rows.axis_iter(Axis(query.lane.sequence));
        let first = rows.next();
        first.is_none_or(|first| rows.all(|row| row == first))
    });
    are_learned(classes, site) && !same
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

/// Where rows that different learned queries gathered meet those of tokens one by one: there the queries
/// stand for places. What one query gathered may meet every token.
pub(crate) fn meets_tokens(
    (graph, trace, classes): (&Graph, &Trace, &Classes),
    tokens: &Tokens,
    sites: &[Site],
) -> Vec<NodeId> {
    let apart = sites.iter().filter(|s| are_told_apart(classes, trace, s));
    let apart: Vec<Site> = apart.cloned().collect();
    if apart.is_empty() {
        return vec![];
    }
    let gathered = gathered(graph, classes, &apart);
    let sized = |v: ValueId| trace.get(v).dims.as_deref();
    let known = reads(graph, classes, sites);
    let products = known.keys_and_values.iter().map(|(node, _)| *node);
    let readers: FxHashSet<NodeId> = products.chain(known.fused.keys().copied()).collect();
    let meets = |id: &NodeId| {
        let node = graph.node(*id);
        let content = || classes.content(node);
        let is_mixed = content().any(|v| gathered.contains(&v));
        if !is_mixed || is_product(node) || node.bodies().next().is_some() || readers.contains(id) {
            return false;
        }
        let mut tokens = content().filter(|v| !gathered.contains(v)).filter_map(|v| {
            let dims = sized(v)?;
            let axis = tokens.axis(v, dims)?;
            (!puts_behind(node, axis, dims.len())).then_some((dims[axis], dims.len() - axis))
        });
        tokens.any(|(size, from_end)| {
            let mut rows = content().filter(|v| gathered.contains(v));
            rows.any(|v| {
                let dims = sized(v).unwrap_or_default();
                let axis = dims.len().checked_sub(from_end);
                axis.is_some_and(|axis| dims[axis] == size && size > 1)
                    && !repeats((graph, trace), v, from_end)
            })
        })
    };
    let order = graph.order(graph.main()).unwrap_or_default();
    order.into_iter().filter(meets).collect()
}

/// Whether a node puts its inputs one behind the other along an axis.
fn puts_behind(node: &Node, axis: usize, rank: usize) -> bool {
    let along = node
        .int("axis")
        .ok()
        .flatten()
        .filter(|_| node.is("Concat"));
    along.and_then(|along| wrap(along, rank)) == Some(axis)
}

/// Whether a value is the same along an axis that is counted from the end.
fn repeats((graph, trace): (&Graph, &Trace), value: ValueId, from_end: usize) -> bool {
    let dims = trace.get(value).dims.as_deref().unwrap_or_default();
    match dims.len().checked_sub(from_end) {
        None => return true,
        Some(axis) if dims[axis] == 1 => return true,
        Some(_) => {}
    }
    let Some((id, _)) = graph.producer(value) else {
        return false;
    };
    let node = graph.node(id);
    let inputs = match node.op() {
        "Expand" | "Tile" => 1,
        "LayerNormalization" if from_end > 1 => 1,
        op if is_elementwise(op) && node.domain().is_empty() => node.inputs().len(),
        _ => return false,
    };
    let mut inputs = node.inputs().iter().take(inputs).flatten();
    inputs.all(|v| repeats((graph, trace), *v, from_end))
}
