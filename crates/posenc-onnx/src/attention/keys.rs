//! Keys from the product back to their projection: repeated heads, and the cache that joins.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Node, ValueId};
use rustc_hash::FxHashSet;

use crate::attention::site::Site;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::lane::{Lane, back, wrap};

/// What the keys are computed from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keys {
    /// Batch times key heads, before heads are repeated.
    pub(crate) heads: Option<usize>,
    /// New keys, without those of the cache.
    pub(crate) length: Option<usize>,
    /// Whether a cache joins.
    pub(crate) past: bool,
}

/// Elements that share a token and a feature: batch times heads.
pub(crate) fn per_token(dims: &[usize], lane: &Lane) -> Option<usize> {
    let all = dims.iter().try_fold(1usize, |n, d| n.checked_mul(*d))?;
    let each = dims.get(lane.sequence)?.checked_mul(lane.width(dims)?)?;
    all.checked_div(each)
}

/// Follows the keys back to the projection that makes them.
pub(crate) fn trace_back(graph: &Graph, classes: &Classes, trace: &Trace, site: &Site) -> Keys {
    let width = site.head_dim;
    let mut keys = Keys::default();
    // Whether all heads are there: not where they are joined from parts.
    let mut stack: Vec<(ValueId, Lane, bool)> = vec![(site.key.value, site.key.lane, true)];
    let mut seen = FxHashSet::default();
    while let Some((value, lane, whole)) = stack.pop() {
        if !seen.insert(value) {
            continue;
        }
        if !classes.of_value(value).has(Class::FRESH) {
            keys.past = true;
            continue;
        }
        let dims = trace.get(value).dims.as_ref();
        let Some(dims) = dims.filter(|d| !d.contains(&0)) else {
            continue;
        };
        // A part of the features may be shared by all heads: whole heads count.
        if whole && lane.width(dims) == width {
            let count = per_token(dims, &lane);
            keys.heads = [keys.heads, count].into_iter().flatten().min();
        }
        keys.length = [keys.length, Some(dims[lane.sequence])]
            .into_iter()
            .flatten()
            .min();
        let Some((id, output)) = graph.producer(value) else {
            continue;
        };
        let node = graph.node(id);
        let is_fresh = |v: &&ValueId| classes.of_value(**v).has(Class::FRESH);
        let fresh = node.inputs().iter().flatten().filter(is_fresh).count();
        // Tokens of this run may be projected in parts.
        if fresh > 1 && joined_axis(node, dims.len()) == Some(lane.sequence) {
            continue;
        }
        let whole = whole && !joins_heads(node, dims.len(), &lane);
        for slot in 0..node.inputs().len() {
            let Some(input) = node.input(slot) else {
                continue;
            };
            if classes.of_value(input).has(Class::CONTENT)
                && let Some(lane) = back(graph, trace, id, output, slot, lane)
            {
                stack.push((input, lane, whole));
            }
        }
    }
    keys
}

/// Whether a node joins parts along an axis that heads are on.
fn joins_heads(node: &Node, rank: usize, lane: &Lane) -> bool {
    joined_axis(node, rank).is_some_and(|axis| {
        let of_features = Some(axis) == lane.feature && lane.group.is_none();
        axis != lane.sequence && !of_features
    })
}

/// The axis along which a node joins values.
fn joined_axis(node: &Node, rank: usize) -> Option<usize> {
    let axis = node
        .int("axis")
        .ok()
        .flatten()
        .filter(|_| node.is("Concat"));
    axis.and_then(|axis| wrap(axis, rank))
}
