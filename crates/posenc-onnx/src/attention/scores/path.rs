//! The path from the product of queries and keys to the softmax: the content on it, and what is
//! added there.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, NodeId, Use, ValueId};
use rustc_hash::FxHashSet;

use super::fused::fused_entry;
use crate::attention::site::Site;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::operators::{is_copy, is_elementwise, is_layout, is_product, is_reshape};

/// The nodes before the scores that content passes, and the values that were visited; products end
/// the search. A fused operator has no product: the search is before its bias.
fn content_nodes(
    graph: &Graph,
    classes: &Classes,
    product: Option<ValueId>,
    scores: ValueId,
) -> (Vec<NodeId>, FxHashSet<ValueId>) {
    let mut nodes = vec![];
    let mut seen = FxHashSet::default();
    let mut stack = vec![scores];
    while let Some(value) = stack.pop() {
        if Some(value) == product || !seen.insert(value) {
            continue;
        }
        let Some((id, _)) = graph.producer(value) else {
            continue;
        };
        let node = graph.node(id);
        if is_product(node) || node.is("Softmax") {
            continue;
        }
        nodes.push(id);
        let inputs = node.inputs().iter().flatten().copied();
        stack.extend(inputs.filter(|v| classes.of_value(*v).has(Class::CONTENT)));
    }
    (nodes, seen)
}

/// The products of content with content that the scores are computed from.
pub(crate) fn products(graph: &Graph, classes: &Classes, site: &Site) -> usize {
    let content = |v: &&ValueId| classes.of_value(**v).has(Class::CONTENT);
    let (Some(product), Some(scores)) = (site.product, site.scores) else {
        return 1;
    };
    let (_, seen) = content_nodes(graph, classes, Some(product), scores);
    let makers = seen.iter().filter_map(|v| graph.producer(*v));
    let others = makers.filter(|(id, _)| {
        let node = graph.node(*id);
        is_product(node) && node.inputs().iter().flatten().filter(content).count() > 1
    });
    1 + others.count()
}

/// The values on the paths from the product to the scores, the product included.
pub(crate) fn product_path(graph: &Graph, classes: &Classes, site: &Site) -> FxHashSet<ValueId> {
    let (Some(product), Some(scores)) = (site.product, site.scores) else {
        return FxHashSet::default();
    };
    let (_, seen) = content_nodes(graph, classes, Some(product), scores);
    flow(graph, product, &seen)
}

/// The values that depend on `from` among those that were visited, itself included.
fn flow(graph: &Graph, from: ValueId, seen: &FxHashSet<ValueId>) -> FxHashSet<ValueId> {
    let mut flow = FxHashSet::from_iter([from]);
    let mut stack = vec![from];
    while let Some(value) = stack.pop() {
        for at in graph.uses(value) {
            for out in graph.node(at.node).outputs().iter().flatten() {
                if seen.contains(out) && flow.insert(*out) {
                    stack.push(*out);
                }
            }
        }
    }
    flow
}

/// The uses at which content other than the product itself joins the scores: separate terms,
/// such as products of queries with positions.
/// Of a fused operator, its bias or mask input where that follows from content.
pub(crate) fn terms(graph: &Graph, classes: &Classes, site: &Site) -> Vec<Use> {
    let content = |v: &ValueId| classes.of_value(*v).has(Class::CONTENT);
    let (Some(product), Some(scores)) = (site.product, site.scores) else {
        let read = |at: &Use| graph.node(at.node).input(at.slot());
        let entry = fused_entry(graph, site);
        return entry
            .filter(|at| read(at).is_some_and(|v| content(&v)))
            .into_iter()
            .collect();
    };
    let (mut nodes, seen) = content_nodes(graph, classes, Some(product), scores);
    let main = flow(graph, product, &seen);
    nodes.sort_unstable();
    nodes.dedup();
    let mut terms = vec![];
    for id in nodes {
        let inputs = graph.node(id).inputs();
        if !inputs.iter().flatten().any(|v| main.contains(v)) {
            continue;
        }
        for (slot, value) in inputs.iter().enumerate() {
            if let Some(value) = value
                && content(value)
                && !main.contains(value)
            {
                terms.push(Use::new(id, slot));
            }
        }
    }
    terms
}

/// Whether the term of this use is a gated bias: content that is the same for all keys, times
/// numbers without content that differ.
pub(crate) fn is_gated(
    graph: &Graph,
    classes: &Classes,
    trace: &Trace,
    site: &Site,
    term: Use,
) -> bool {
    let Some(from_end) = site.keys_from_end(trace) else {
        return false;
    };
    // The keys for which a value differs.
    let along = |v: ValueId| {
        let dims = trace.get(v).dims.as_deref().unwrap_or_default();
        let axis = dims.len().checked_sub(from_end);
        axis.map_or(1, |a| dims[a])
    };
    let mut value = graph.node(term.node).input(term.slot());
    while let Some((id, _)) = value.and_then(|v| graph.producer(v)) {
        let node = graph.node(id);
        let inputs = || node.inputs().iter().flatten().copied();
        let (content, free): (Vec<_>, Vec<_>) =
            inputs().partition(|v| classes.of_value(*v).has(Class::CONTENT));
        let [content] = content[..] else {
            return false;
        };
        if node.is("Mul") && along(content) == 1 && free.iter().any(|v| along(*v) > 1) {
            return true;
        }
        let is_scale = node.is("Mul") || node.is("Div") && node.input(0) == Some(content);
        let scales = is_scale && free.iter().all(|v| along(*v) == 1);
        let moves = is_copy(node.op()) || is_reshape(node.op()) || node.is("Add") || scales;
        value = moves.then_some(content);
    }
    false
}

/// The bias that content gates at this use, its own entry, of a fused operator.
pub(super) fn gated(
    graph: &Graph,
    classes: &Classes,
    trace: &Trace,
    site: &Site,
    own: Use,
) -> Option<ValueId> {
    let value = graph.node(own.node).input(own.slot())?;
    let is_content = classes.of_value(value).has(Class::CONTENT);
    (is_content && is_gated(graph, classes, trace, site, own)).then_some(value)
}

/// The content that separate terms are computed from: the operands of their sums and gates.
pub(crate) fn origins(graph: &Graph, classes: &Classes, terms: &[Use]) -> FxHashSet<ValueId> {
    let mut found = FxHashSet::default();
    let mut seen = FxHashSet::default();
    let mut stack: Vec<ValueId> = terms
        .iter()
        .filter_map(|u| graph.node(u.node).input(u.slot()))
        .collect();
    while let Some(value) = stack.pop() {
        if !seen.insert(value) {
            continue;
        }
        let node = graph.producer(value).map(|(id, _)| graph.node(id));
        let through =
            node.filter(|n| n.domain().is_empty() && (is_elementwise(n.op()) || is_layout(n.op())));
        match through {
            Some(node) => {
                let inputs = node.inputs().iter().flatten().copied();
                stack.extend(inputs.filter(|v| classes.of_value(*v).has(Class::CONTENT)));
            }
            None => {
                found.insert(value);
            }
        }
    }
    found
}

/// The uses at which biases and masks enter between the product and the softmax: values without
/// content, except single numbers. Where content gates the bias of a fused operator, they enter before it.
pub(crate) fn entries(graph: &Graph, classes: &Classes, trace: &Trace, site: &Site) -> Vec<Use> {
    let plain = |v: ValueId| {
        let one = trace.get(v).elements().is_some_and(|n| n <= 1);
        !classes.of_value(v).has(Class::CONTENT) && !one
    };
    let own = fused_entry(graph, site);
    let end = site
        .scores
        .or_else(|| gated(graph, classes, trace, site, own?));
    let Some(end) = end else {
        return own.into_iter().collect();
    };
    let mut found = vec![];
    for id in content_nodes(graph, classes, site.product, end).0 {
        let node = graph.node(id);
        let computes = is_elementwise(node.op()) || node.is("Concat");
        for (slot, input) in node.inputs().iter().enumerate() {
            if let Some(input) = *input
                && computes
                && plain(input)
            {
                found.push(Use::new(id, slot));
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}
