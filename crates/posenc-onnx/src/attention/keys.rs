//! Keys from the product back to their projection: repeated heads, and the cache that joins.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Node, NodeId, ValueId};
use rustc_hash::FxHashSet;

use crate::attention::site::Site;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::lane::{Lane, back, wrap};
use crate::graph::operators::{is_write, spliced};

/// What the keys are computed from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keys {
    /// Batch times key heads, before heads are repeated.
    pub(crate) heads: Option<usize>,
    /// New keys, without those of the cache.
    pub(crate) length: Option<usize>,
    /// Whether a cache joins.
    pub(crate) past: bool,
    /// The input that new keys are written into, and its axis of slots.
    pub(crate) buffer: Option<(ValueId, usize)>,
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
        keys.buffer = keys.buffer.or(buffer(graph, classes, trace, id, lane));
        let is_fresh = |v: &&ValueId| classes.of_value(**v).has(Class::FRESH);
        let fresh = node.inputs().iter().flatten().filter(is_fresh).count();
        // Tokens of this run may be projected in parts.
        if fresh > 1 && joined_axis(node, dims.len()) == Some(lane.sequence) {
            continue;
        }
        let joins = joins_heads(node, dims.len(), &lane);
        // Repeated heads may be joined from the same parts.
        let mut parts: Vec<ValueId> = node.inputs().iter().flatten().copied().collect();
        parts.sort_unstable();
        parts.dedup();
        if joins && whole && lane.width(dims) == width && parts.len() < node.inputs().len() {
            let count = |v: &ValueId| {
                let dims = trace.get(*v).dims.as_deref()?;
                per_token(dims, &lane)
            };
            let all = parts.iter().map(count).sum();
            keys.heads = [keys.heads, all].into_iter().flatten().min();
        }
        let whole = whole && (!joins || parts.len() == 1);
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

/// The input that a node writes new keys into, and its axis of slots.
fn buffer(
    graph: &Graph,
    classes: &Classes,
    trace: &Trace,
    id: NodeId,
    lane: Lane,
) -> Option<(ValueId, usize)> {
    let node = graph.node(id);
    let (mut value, mut lane) = match is_write(node) {
        true => (node.input(0)?, back(graph, trace, id, 0, 0, lane)?),
        false => (refilled(graph, trace, id, lane)?, lane),
    };
    if classes.of_value(value).has(Class::FRESH) {
        return None;
    }
    while let Some((before, output)) = graph.producer(value) {
        lane = back(graph, trace, before, output, 0, lane)?;
        value = graph.node(before).input(0)?;
    }
    Some((value, lane.sequence))
}

/// The slots that new keys are put into, where a node joins these keys to the slots before and behind them.
fn refilled(graph: &Graph, trace: &Trace, id: NodeId, lane: Lane) -> Option<ValueId> {
    let node = graph.node(id);
    let dims = trace.get(node.output(0)?).dims.as_deref()?;
    let slots = spliced(graph, node)?;
    let count = trace.get(slots).dims.as_deref()?.get(lane.sequence);
    let is_along = joined_axis(node, dims.len()) == Some(lane.sequence);
    (is_along && count == dims.get(lane.sequence)).then_some(slots)
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

#[cfg(test)]
mod tests {
    use crate::detect::{Options, detect};
    use crate::graph::sketch::{A, HEADS, HIDDEN, SIZE, Sketch};

    /// Heads of keys of a layer whose keys and values `repeat` makes of `heads` projected ones.
    fn heads(heads: usize, repeat: fn(&mut Sketch, &str) -> String) -> Option<usize> {
        let mut s = Sketch::default();
        let x = s.embedded();
        let q = s.headed(&x);
        let [k, v] = [(); 2].map(|()| {
            let w = s.weights(&[HIDDEN, heads * SIZE]);
            let y = s.op("MatMul", &[&x, &w]);
            let y = s.reshape(&y, &[0, 0, heads as i64, SIZE as i64]);
            let y = s.transpose(&y, &[0, 2, 1, 3]);
            repeat(&mut s, &y)
        });
        let k = s.transpose(&k, &[0, 1, 3, 2]);
        let scores = s.op("MatMul", &[&q, &k]);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = s.op("MatMul", &[&weights, &v]);
        let y = s.merged(&y);
        let found = detect(&s.model(18, &[&y]), &Options::default());
        found.attention[0].kv_heads
    }

    #[test]
    fn heads_that_are_joined_from_the_same_parts_count_once() {
        assert_eq!(heads(1, |s, k| s.concat(&[k, k, k], 1)), Some(1));
        let unsqueezed = |s: &mut Sketch, k: &str| {
            let k = s.unsqueeze(k, &[2]);
            let k = s.concat(&[&k, &k, &k], 2);
            s.reshape(&k, &[0, HEADS as i64, -1, SIZE as i64])
        };
        assert_eq!(heads(1, unsqueezed), Some(1));
        let split = |s: &mut Sketch, k: &str| {
            let parts = s.many(
                "Split",
                &[k],
                &[("axis", A::Int(1)), ("num_outputs", A::Int(2))],
                2,
            );
            s.concat(&[&parts[0], &parts[0], &parts[1]], 1)
        };
        assert_eq!(heads(2, split), Some(2));
        let whole = |s: &mut Sketch, k: &str| s.op("Identity", &[k]);
        assert_eq!(heads(HEADS, whole), Some(HEADS));
        let parts = |s: &mut Sketch, k: &str| {
            let parts: Vec<String> = (0..3).map(|i| s.slice(k, 1, [i, i + 1, 1])).collect();
            s.concat(&[&parts[0], &parts[1], &parts[2]], 1)
        };
        assert_eq!(heads(HEADS, parts), Some(HEADS), "control");
    }
}
