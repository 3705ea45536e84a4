//! Frontiers: where values that vary along the sequence, but not with content, act on content
//! between a projection and the product of queries and keys.

mod detour;
mod whole;

use std::collections::BTreeSet;

use ndarray::Array2;
use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Node, NodeId, Use, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::attention::site::Operand;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::lane::{Lane, back, wrap};
use crate::graph::operators::{is_elementwise, is_norm, is_rotary};
use crate::graph::region::Region;
use detour::detour;

/// The content values between a projection and the product, with their lanes.
#[derive(Clone, Debug)]
pub(crate) struct OperandPath {
    lanes: FxHashMap<ValueId, Lane>,
    /// The nodes that compute them, operand last.
    nodes: BTreeSet<NodeId>,
    end: ValueId,
}

/// What acts on a path.
#[derive(Clone, Debug)]
pub(crate) enum Frontier {
    /// No position.
    Nothing,
    /// Position, between one value and another.
    Region(Box<Region>),
    /// Position that enters at this node and elsewhere, with no one value before or after all of it.
    Scattered(NodeId),
}

/// Nodes between a norm and a projection that rotate the input of the projection.
const FEW: usize = 64;

impl OperandPath {
    /// Follows an operand of the product back to its projections.
    pub(crate) fn of(graph: &Graph, classes: &Classes, trace: &Trace, operand: &Operand) -> Self {
        let none = |_: &Node| false;
        Self::until(graph, classes, trace, operand, &none, usize::MAX)
    }

    /// Continues this path from the input of the projection back to the norm before it; `None` where
    /// the projection is not one product, or no norm is near.
    pub(crate) fn before(
        &self,
        graph: &Graph,
        classes: &Classes,
        trace: &Trace,
        head_dim: usize,
    ) -> Option<Self> {
        let product = |v: ValueId| {
            let (id, _) = graph.producer(v)?;
            let node = graph.node(id);
            (node.is("MatMul") && !self.nodes.contains(&id)).then_some((v, id))
        };
        let mut products = self.lanes.keys().filter_map(|v| product(*v));
        let (Some((value, id)), None) = (products.next(), products.next()) else {
            return None;
        };
        let input = graph.node(id).input(0)?;
        let dims = trace.get(input).dims.as_deref()?;
        let last = dims.len().checked_sub(1)?;
        let sequence = self.lanes[&value].sequence;
        let whole = dims.len() == trace.get(value).dims.as_ref()?.len()
            && sequence < last
            && dims[last].is_multiple_of(head_dim);
        if !whole || !classes.of_value(input).has(Class::CONTENT) {
            return None;
        }
        let operand = Operand {
            value: input,
            lane: Lane {
                sequence,
                feature: Some(last),
                group: Some(head_dim),
                offset: 0,
            },
        };
        let found = Self::until(graph, classes, trace, &operand, &is_norm, FEW);
        (found.nodes.len() < FEW).then_some(found)
    }

    /// Follows content back to projections and to nodes that end the path, over `most` nodes.
    fn until(
        graph: &Graph,
        classes: &Classes,
        trace: &Trace,
        operand: &Operand,
        is_end: &dyn Fn(&Node) -> bool,
        most: usize,
    ) -> Self {
        let mut path = Self {
            lanes: FxHashMap::default(),
            nodes: BTreeSet::new(),
            end: operand.value,
        };
        let mut stack = vec![(operand.value, operand.lane)];
        while let Some((value, lane)) = stack.pop() {
            if path.nodes.len() >= most {
                break;
            }
            match path.lanes.get(&value) {
                // A lane that knows its features is worth a second visit.
                Some(old) if old.feature.is_some() || lane.feature.is_none() => continue,
                _ => {}
            }
            path.lanes.insert(value, lane);
            let Some((id, output)) = graph.producer(value) else {
                continue;
            };
            let node = graph.node(id);
            if is_end(node) {
                continue;
            }
            if ends_path(node) {
                if let Some((slot, lane)) = rotating(graph, classes, trace, id, lane)
                    && let Some(input) = node.input(slot)
                {
                    path.nodes.insert(id);
                    stack.push((input, lane));
                }
                continue;
            }
            path.nodes.insert(id);
            let mut is_lost = true;
            for slot in 0..node.inputs().len() {
                let Some(input) = node.input(slot) else {
                    continue;
                };
                if classes.of_value(input).has(Class::CONTENT)
                    && let Some(lane) = back(graph, trace, id, output, slot, lane)
                {
                    stack.push((input, lane));
                    is_lost = false;
                }
            }
            if is_lost && let Some(around) = detour(graph, classes, trace, id, &lane) {
                path.nodes.extend(around.nodes);
                path.lanes.extend(around.between);
                stack.push((around.start, lane));
            }
        }
        path
    }

    /// The uses at which position enters the path.
    fn entries(&self, graph: &Graph, classes: &Classes, trace: &Trace) -> Vec<Use> {
        let mut entries = vec![];
        for id in &self.nodes {
            let node = graph.node(*id);
            if is_rotary(node) {
                entries.extend((1..node.inputs().len()).filter_map(|slot| {
                    node.input(slot)?;
                    Some(Use::new(*id, slot))
                }));
                continue;
            }
            let Some(lane) = node.output(0).and_then(|v| self.lanes.get(&v)) else {
                continue;
            };
            for (slot, input) in node.inputs().iter().enumerate() {
                let Some(input) = input else { continue };
                if classes.of_value(*input).has(Class::CONTENT) {
                    continue;
                }
                let along = match node.op() {
                    op if is_elementwise(op) => {
                        back(graph, trace, *id, 0, slot, *lane).map(|l| l.sequence)
                    }
                    "Concat" => along_features(trace, node, lane),
                    // A product is part of the path only where it rotates the features of a head.
                    _ => crate::graph::product::along(graph, trace, *id, slot, lane),
                };
                if along.is_some_and(|axis| varies(trace, *input, axis)) {
                    entries.push(Use::new(*id, slot));
                }
            }
        }
        entries.sort_unstable();
        entries
    }

    /// Whether position enters it as factors only, as in a rotation; a term added to the residual
    /// stream does not.
    pub(crate) fn is_rotated(&self, graph: &Graph, classes: &Classes, trace: &Trace) -> bool {
        let entries = self.entries(graph, classes, trace);
        !entries.is_empty() && entries.iter().all(|u| graph.node(u.node).is("Mul"))
    }

    /// The region in which position acts on this path.
    pub(crate) fn region(&self, graph: &Graph, classes: &Classes, trace: &Trace) -> Frontier {
        let entries = self.entries(graph, classes, trace);
        let Some(first) = entries.first().map(|u| u.node) else {
            return Frontier::Nothing;
        };
        match self.around(graph, trace, entries) {
            Some(region) => Frontier::Region(Box::new(region)),
            None => Frontier::Scattered(first),
        }
    }

    /// The region around these entries; `None` where they have no one source and no one end.
    fn around(&self, graph: &Graph, trace: &Trace, entries: Vec<Use>) -> Option<Region> {
        let nodes: BTreeSet<NodeId> = entries.iter().map(|u| u.node).collect();
        let order = self.order(graph);
        let content_inputs = |id: NodeId| {
            let inputs = graph.node(id).inputs().iter().flatten();
            inputs.copied().filter(|v| self.lanes.contains_key(v))
        };
        let before = |v: ValueId| -> Vec<ValueId> {
            match graph.producer(v) {
                Some((id, _)) if self.nodes.contains(&id) => content_inputs(id).collect(),
                _ => vec![],
            }
        };
        let after = |v: ValueId| -> Vec<ValueId> {
            let readers = graph
                .uses(v)
                .iter()
                .filter(|u| self.nodes.contains(&u.node));
            readers
                .flat_map(|u| graph.node(u.node).outputs().iter().flatten())
                .copied()
                .filter(|v| self.lanes.contains_key(v))
                .collect()
        };
        let entering: Vec<ValueId> = nodes.iter().flat_map(|n| content_inputs(*n)).collect();
        let leaving: Vec<ValueId> = nodes
            .iter()
            .flat_map(|n| graph.node(*n).outputs().iter().flatten().copied())
            .filter(|v| self.lanes.contains_key(v))
            .collect();
        let back = |values| meet(values, before, |v| usize::MAX - order(v), None);
        let mut input = back(entering)?;
        let output = meet(leaving, after, &order, Some(self.end))?;
        // Where pairs have an axis of their own, the features are whole in a later value.
        let whole = |v: &ValueId| self.lanes.get(v).is_some_and(|l| l.feature.is_some());
        let output = match first_whole(output, after, whole) {
            Some(later) if !self.is_whole(trace, input, output, later) => later,
            _ => output,
        };
        // Features that do not rotate may join only at the end.
        let source = |mut input: ValueId, output: ValueId| loop {
            let mut joining = joining(input, output, before, &order);
            if joining.is_empty() {
                return Some(input);
            }
            joining.push(input);
            input = back(joining)?;
        };
        input = source(input, output)?;
        let mut input_lane = *self.lanes.get(&input)?;
        // Parts of the features may be cut from the whole one by one, so that the others join behind.
        let whole = self.whole_again(trace, input, output, after);
        let whole = whole.filter(|later| source(input, *later) == Some(input));
        let output = whole.unwrap_or(output);
        if whole.is_some() {
            input_lane.offset = self.lanes.get(&output)?.offset;
        }
        Some(Region {
            input,
            input_lane,
            output,
            output_lane: *self.lanes.get(&output)?,
            entries,
            inside: None,
        })
    }

    /// The changes of basis between a value of the path and its end, as one matrix `[out, in]`; `None`
    /// where there are none.
    pub(crate) fn basis_after(
        &self,
        graph: &Graph,
        trace: &Trace,
        from: ValueId,
    ) -> Option<Array2<f64>> {
        let mut seen = FxHashSet::default();
        let mut stack: Vec<(ValueId, Option<Array2<f64>>)> = vec![(self.end, None)];
        while let Some((value, after)) = stack.pop() {
            if value == from {
                return after;
            }
            let Some((id, _)) = graph.producer(value).filter(|_| seen.insert(value)) else {
                continue;
            };
            let node = graph.node(id);
            for (slot, input) in node.inputs().iter().enumerate() {
                let Some(input) = input.filter(|v| self.lanes.contains_key(v)) else {
                    continue;
                };
                let own =
                    ends_path(node).then(|| crate::graph::product::basis(graph, trace, id, slot));
                let both = match (&after, own.flatten()) {
                    (Some(after), Some(own)) => Some(after.dot(&own)),
                    (after, own) => own.or_else(|| after.clone()),
                };
                stack.push((input, both));
            }
        }
        None
    }

    /// The order of computation of the values of the path.
    fn order(&self, graph: &Graph) -> impl Fn(ValueId) -> usize + use<> {
        let mut depth: FxHashMap<ValueId, usize> = FxHashMap::default();
        let mut stack: Vec<(ValueId, bool)> = vec![(self.end, false)];
        let mut next = 0;
        while let Some((value, done)) = stack.pop() {
            if done {
                depth.entry(value).or_insert_with(|| {
                    next += 1;
                    next
                });
                continue;
            }
            if depth.contains_key(&value) {
                continue;
            }
            stack.push((value, true));
            if let Some((id, _)) = graph.producer(value)
                && self.nodes.contains(&id)
            {
                let inputs = graph.node(id).inputs().iter().flatten();
                stack.extend(
                    inputs
                        .filter(|v| self.lanes.contains_key(v) && !depth.contains_key(v))
                        .map(|v| (*v, false)),
                );
            }
        }
        move |v| depth.get(&v).copied().unwrap_or(0)
    }
}

/// Steps from the value first in `key` to its neighbors until one value is left: the nearest that
/// all paths run through. `None` where the paths never meet.
fn meet(
    mut values: Vec<ValueId>,
    neighbors: impl Fn(ValueId) -> Vec<ValueId>,
    key: impl Fn(ValueId) -> usize,
    end: Option<ValueId>,
) -> Option<ValueId> {
    loop {
        values.sort_unstable_by_key(|v| key(*v));
        values.dedup();
        match values.as_slice() {
            [] => return None,
            [one] => return Some(*one),
            [first, ..] => {
                let next = neighbors(*first);
                if next.is_empty() && Some(*first) != end {
                    return None;
                }
                values.swap_remove(0);
                values.extend(next);
            }
        }
    }
}

/// The values that join what flows from `input` to `output` without coming from `input`.
fn joining(
    input: ValueId,
    output: ValueId,
    before: impl Fn(ValueId) -> Vec<ValueId>,
    order: impl Fn(ValueId) -> usize,
) -> Vec<ValueId> {
    let mut within = vec![output];
    let mut seen = FxHashSet::from_iter([input, output]);
    let mut at = 0;
    while let Some(value) = within.get(at).copied() {
        at += 1;
        within.extend(before(value).into_iter().filter(|v| seen.insert(*v)));
    }
    within.sort_unstable_by_key(|v| order(*v));
    let mut flows = FxHashSet::from_iter([input]);
    let mut joining = vec![];
    for value in within {
        let (ours, others): (Vec<_>, Vec<_>) =
            before(value).into_iter().partition(|v| flows.contains(v));
        if !ours.is_empty() {
            flows.insert(value);
            joining.extend(others);
        }
    }
    joining
}

/// Changes of shape around a rotation are few.
const STEPS: usize = 8;

/// The first value for which `whole` is true on the only path from `value`.
fn first_whole(
    mut value: ValueId,
    neighbors: impl Fn(ValueId) -> Vec<ValueId>,
    whole: impl Fn(&ValueId) -> bool,
) -> Option<ValueId> {
    for _ in 0..STEPS {
        if whole(&value) {
            return Some(value);
        }
        let [next] = neighbors(value)[..] else {
            return None;
        };
        value = next;
    }
    None
}

/// The axis of tokens in parts that a node concatenates along the features; `None` where it
/// concatenates tokens.
fn along_features(trace: &Trace, node: &Node, lane: &Lane) -> Option<usize> {
    let rank = trace.get(node.output(0)?).dims.as_ref()?.len();
    let axis = wrap(node.int("axis").ok()??, rank)?;
    (axis != lane.sequence).then_some(lane.sequence)
}

/// Operators at which a path ends. Other than `operators::is_projection`, this counts attention and
/// all fused operators but rotations: what they compute is not followed.
fn ends_path(node: &Node) -> bool {
    let op = node.op();
    match node.domain() {
        "" => matches!(
            op,
            "MatMul" | "Gemm" | "Einsum" | "Conv" | "Softmax" | "Attention"
        ),
        "com.microsoft" => !is_rotary(node),
        _ => false,
    }
}

/// A product that acts within each head: with a matrix that changes the basis, or with one for each
/// position. Which input is the content, and its lane.
fn rotating(
    graph: &Graph,
    classes: &Classes,
    trace: &Trace,
    id: NodeId,
    lane: Lane,
) -> Option<(usize, Lane)> {
    let node = graph.node(id);
    let content = |slot: usize| {
        let value = node.input(slot);
        value.is_some_and(|v| classes.of_value(v).has(Class::CONTENT))
    };
    let (slot, other) = match (content(0), content(1)) {
        (true, false) => (0, 1),
        (false, true) => (1, 0),
        _ => return None,
    };
    let before = crate::graph::product::before(graph, trace, id, slot, &lane)?;
    let along = crate::graph::product::along(graph, trace, id, other, &lane);
    let matrix = node.input(other)?;
    let rotates = match along {
        Some(axis) => varies(trace, matrix, axis),
        None => crate::graph::product::basis(graph, trace, id, slot).is_some(),
    };
    rotates.then_some((slot, before))
}

/// Whether numbers differ along an axis, or may.
fn varies(trace: &Trace, value: ValueId, axis: usize) -> bool {
    let Some(data) = trace.get(value).to_f64() else {
        // Numbers that are not at hand may be any; an axis is only known where the size is.
        let dims = trace.get(value).dims.as_deref();
        return dims.is_some_and(|dims| dims.get(axis).is_some_and(|size| *size > 1));
    };
    if axis >= data.ndim() || data.shape()[axis] < 2 {
        return false;
    }
    let first = data.index_axis(ndarray::Axis(axis), 0);
    data.axis_iter(ndarray::Axis(axis)).any(|row| row != first)
}
