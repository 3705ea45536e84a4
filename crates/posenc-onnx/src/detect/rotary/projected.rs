//! The order in which a projection gives the features that rotate.

use ndarray::{ArrayD, Dimension, IxDyn};
use posenc_encodings::families::rope::Rope;
use posenc_encodings::layout::Layout;
use posenc_ir::eval::{Budget, Trace, Value, probe};
use posenc_ir::{Graph, Model, Node, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::site::RotaryOperand;
use crate::detect::Found;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::lane::back;
use crate::graph::operators::{is_copy, is_layout};

/// Numbers of features that are followed.
const BUDGET: Budget = Budget { elements: 1 << 22 };

/// The layout of the pairs in what the projection gives, where features are put into another order
/// before they rotate; `None` where they are not, or their pairs follow no layout there.
///
/// DeepSeek's models put features in turn into halves, and rotate halves: their weights, and those who
/// made them, call that interleaved.
pub(crate) fn projected_layout(
    model: &Model,
    found: &Found,
    operand: &RotaryOperand,
) -> Option<Layout> {
    let graph = model.graph();
    let at = operand.region.input;
    let lane = operand.region.input_lane;
    let axis = lane.feature?;
    if !is_reordered(graph, &found.trace, operand) {
        return None;
    }
    let from = projection(graph, &found.classes, at)?;
    let given = found.trace.get(from);
    let dims = given.dims.clone()?;
    given.elements().filter(|n| *n <= BUDGET.elements)?;
    let numbers = ArrayD::from_shape_fn(IxDyn(&dims), |place| {
        place.slice().last().copied().unwrap_or(0) as f64
    });
    let dtype = given.dtype?;
    let seeds = FxHashMap::from_iter([(from, Value::float(numbers).with_dtype(dtype))]);
    let got = probe(model, &found.trace, &seeds, &[at], &BUDGET).ok()?;
    let got = got.first()?.to_f64()?;
    let rope = &operand.rotation.rope;
    // All features of a head, or those that rotate.
    let begin = match lane.width(got.shape())? {
        width if width == rope.head_dim => 0,
        width if width == rope.rotary_dim => rope.pairs.iter().map(|(a, b)| *a.min(b)).min()?,
        _ => return None,
    };
    let mut at = vec![0; got.ndim()];
    let mut number = |place: usize| -> Option<i64> {
        *at.get_mut(axis)? = place.checked_sub(begin)?;
        got.get(IxDyn(&at)).map(|number| *number as i64)
    };
    let pairs: Option<Vec<[i64; 2]>> = rope
        .pairs
        .iter()
        .map(|(a, b)| Some([number(*a)?, number(*b)?]))
        .collect();
    layout_of(&pairs?, rope).filter(|layout| Some(*layout) != rope.layout)
}

/// The layout that pairs of features have.
fn layout_of(pairs: &[[i64; 2]], rope: &Rope) -> Option<Layout> {
    let first = pairs.first()?[0];
    let half = i64::try_from(rope.pairs.len()).ok()?;
    let follow = |step: i64, distance: i64| {
        let mut all = (0..).zip(pairs);
        all.all(|(at, [a, b])| *a == first + at * step && b - a == distance)
    };
    match () {
        () if follow(2, 1) => Some(Layout::Interleaved),
        () if follow(1, half) => Some(Layout::Half),
        () => None,
    }
}

/// Whether features are not followed one by one from the rotation back to a projection.
fn is_reordered(graph: &Graph, trace: &Trace, operand: &RotaryOperand) -> bool {
    let (mut at, mut lane) = (operand.region.input, operand.region.input_lane);
    while let Some((id, output)) = graph.producer(at)
        && let Some(before) = graph.node(id).input(0)
        && moves(graph.node(id))
    {
        match back(graph, trace, id, output, 0, lane) {
            Some(next) if next.feature.is_some() => lane = next,
            _ => return true,
        }
        at = before;
    }
    false
}

/// The value that alone is put into another shape and order in a value.
fn projection(graph: &Graph, classes: &Classes, value: ValueId) -> Option<ValueId> {
    let mut from = None;
    let mut stack = vec![value];
    let mut seen = FxHashSet::default();
    while let Some(value) = stack.pop() {
        if !seen.insert(value) {
            continue;
        }
        let node = graph.producer(value).map(|(id, _)| graph.node(id));
        match node.filter(|node| moves(node)) {
            Some(node) => {
                let content = node.inputs().iter().flatten();
                stack.extend(content.filter(|v| classes.of_value(**v).has(Class::CONTENT)));
            }
            None if from.is_none() => from = Some(value),
            None => return None,
        }
    }
    from
}

/// Whether a node moves features, and computes none.
fn moves(node: &Node) -> bool {
    let parts = matches!(node.op(), "Slice" | "Split" | "Concat" | "Gather");
    node.domain().is_empty() && (parts || is_layout(node.op()) || is_copy(node.op()))
}
