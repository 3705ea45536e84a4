//! What attention reads of other tokens than the query's: its keys and values.

use posenc_ir::{Graph, NodeId, ValueId};
use rustc_hash::FxHashSet;

use super::site::Site;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::mixing::Known;
use crate::graph::operators::{is_elementwise, is_product, is_rearrangement};

/// The inputs at which these sites read keys and values.
pub(crate) fn reads(graph: &Graph, classes: &Classes, sites: &[Site]) -> Known {
    let mut known = Known::default();
    for site in sites {
        let Some(product) = site.product.and_then(|v| graph.producer(v)) else {
            known.fused.insert(site.node, 0);
            continue;
        };
        let slots = slots_of(graph, product.0, site.key.value);
        known
            .keys_and_values
            .extend(slots.last().map(|slot| (product.0, *slot)));
        terms(graph, classes, site, &mut known);
        if let Some(weights) = graph.node(site.node).output(0) {
            values(graph, classes, weights, &mut known);
        }
    }
    known
}

/// The slot of the values of a fused operator.
const FUSED_VALUES: usize = 2;

/// The values of a site: the content that its weights are multiplied with.
pub(crate) fn weighted(graph: &Graph, classes: &Classes, site: &Site) -> Vec<ValueId> {
    if site.product.is_none() {
        let own = graph.node(site.node).input(FUSED_VALUES);
        let is_content = |v: &ValueId| classes.of_value(*v).has(Class::CONTENT);
        return own.filter(is_content).into_iter().collect();
    }
    let mut known = Known::default();
    if let Some(weights) = graph.node(site.node).output(0) {
        values(graph, classes, weights, &mut known);
    }
    let at = known.keys_and_values.into_iter();
    let mut values: Vec<ValueId> = at
        .filter_map(|(node, slot)| graph.node(node).input(slot))
        .collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// The inputs of a node that are this value.
fn slots_of(graph: &Graph, node: NodeId, value: ValueId) -> Vec<usize> {
    let node = graph.node(node);
    let slots = 0..node.inputs().len();
    slots
        .filter(|slot| node.input(*slot) == Some(value))
        .collect()
}

/// Products of keys with rows by distance, which join the scores beside the product with queries.
fn terms(graph: &Graph, classes: &Classes, site: &Site, known: &mut Known) {
    let [query, key] = [site.query.value, site.key.value].map(|v| lineage(graph, classes, v));
    // Of a packed projection, both are parts: keys are what no query is made from.
    let is_of_keys = |value: ValueId| {
        let own = lineage(graph, classes, value);
        let met = own.iter().find(|v| key.contains(v) || query.contains(v));
        met.is_some_and(|v| !query.contains(v))
    };
    let mut stack: Vec<ValueId> = site.scores.into_iter().collect();
    let mut seen = FxHashSet::default();
    while let Some(value) = stack.pop() {
        let Some((id, _)) = graph.producer(value).filter(|_| seen.insert(value)) else {
            continue;
        };
        let node = graph.node(id);
        let content = content(graph, classes, id);
        if !is_product(node) {
            stack.extend(content.iter().map(|(_, v)| *v));
        } else if let [(slot, only)] = content[..]
            && is_of_keys(only)
        {
            known.keys_and_values.insert((id, slot));
        }
    }
}

/// The inputs of a node that carry content, by slot.
fn content(graph: &Graph, classes: &Classes, id: NodeId) -> Vec<(usize, ValueId)> {
    let inputs = graph.node(id).inputs().iter().enumerate();
    let is_content = |v: ValueId| classes.of_value(v).has(Class::CONTENT);
    inputs
        .filter_map(|(slot, v)| Some((slot, (*v)?)))
        .filter(|(_, v)| is_content(*v))
        .collect()
}

/// A value, and what it was before it was scaled, moved, rotated or cut, the nearest first.
fn lineage(graph: &Graph, classes: &Classes, mut value: ValueId) -> Vec<ValueId> {
    let mut all = vec![value];
    while let Some((id, _)) = graph.producer(value) {
        let node = graph.node(id);
        let through = node.domain().is_empty()
            && (is_elementwise(node.op())
                || is_rearrangement(node.op())
                || matches!(node.op(), "Slice" | "Concat" | "Split" | "Expand"));
        match content(graph, classes, id).first() {
            Some((_, before)) if through => value = *before,
            _ => break,
        }
        all.push(value);
    }
    all
}

/// The content that weights are multiplied with.
fn values(graph: &Graph, classes: &Classes, weights: ValueId, known: &mut Known) {
    let mut stack = vec![weights];
    let mut seen = FxHashSet::default();
    while let Some(value) = stack.pop() {
        if !seen.insert(value) {
            continue;
        }
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            if is_product(node) {
                for (slot, other) in node.inputs().iter().enumerate() {
                    let is_content = |v: ValueId| classes.of_value(v).has(Class::CONTENT);
                    if other.is_some_and(|v| v != value && is_content(v)) {
                        known.keys_and_values.insert((at.node, slot));
                    }
                }
            } else if node.domain().is_empty()
                && (is_elementwise(node.op())
                    || is_rearrangement(node.op())
                    || node.op() == "Slice")
            {
                stack.extend(node.outputs().iter().flatten());
            }
        }
    }
}
