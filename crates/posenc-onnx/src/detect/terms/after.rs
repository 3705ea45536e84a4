//! Numbers by position that meet the weights of attention behind the softmax.

use ndarray::Axis;
use posenc_ir::{Graph, Node, Use, ValueId};
use rustc_hash::FxHashSet;

use super::weights::softmaxes;
use crate::attention::Site;
use crate::detect::found::Found;
use crate::graph::operators::is_elementwise;

/// Where numbers that follow queries or keys, and are no mask, meet the weights of a site.
pub(crate) fn meetings(graph: &Graph, found: &Found, site: &Site) -> Vec<Use> {
    let (Some(_), Some(plane)) = (site.product, site.plane) else {
        return vec![];
    };
    let softmaxes = softmaxes(graph, site).into_iter();
    let mut stack: Vec<ValueId> = softmaxes
        .filter_map(|id| graph.node(id).output(0))
        .collect();
    let mut seen = FxHashSet::default();
    let mut met = vec![];
    while let Some(value) = stack.pop() {
        if !seen.insert(value) {
            continue;
        }
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            if !node.domain().is_empty() || !is_elementwise(node.op()) {
                continue;
            }
            met.extend(others(found, node, *at, value, plane));
            stack.extend(node.outputs().iter().flatten());
        }
    }
    met.sort_unstable();
    met.dedup();
    met
}

/// The other operands of a node that follow the queries or keys of the weights at `at`.
fn others(found: &Found, node: &Node, at: Use, weights: ValueId, plane: [usize; 2]) -> Vec<Use> {
    let is_sum = matches!(node.op(), "Add" | "Sub" | "Sum");
    let is_product = matches!(node.op(), "Mul" | "Div");
    if !is_sum && !is_product {
        return vec![];
    }
    let rank = found.trace.get(weights).dims.as_ref().map_or(0, Vec::len);
    let follows = |slot: &usize| {
        let other = node.input(*slot);
        let other = other.filter(|v| *v != weights && !found.is_content(*v));
        other.is_some_and(|v| varies(found, v, rank, plane, is_product))
    };
    let slots = (0..node.inputs().len()).filter(follows);
    slots.map(|slot| Use::new(at.node, slot)).collect()
}

/// Whether numbers change along the axis of queries or of keys; a mask of zeros and ones does not.
fn varies(found: &Found, value: ValueId, rank: usize, plane: [usize; 2], masks: bool) -> bool {
    let value = found.trace.get(value);
    let Some(data) = value.to_f64() else {
        return false;
    };
    if masks && data.iter().all(|x| *x == 0.0 || *x == 1.0) {
        return false;
    }
    let lacks = rank.saturating_sub(data.ndim());
    let own = plane.iter().filter_map(|axis| axis.checked_sub(lacks));
    own.filter(|axis| *axis < data.ndim()).any(|axis| {
        let mut rows = data.axis_iter(Axis(axis));
        let first = rows.next();
        rows.any(|row| Some(row) != first)
    })
}
