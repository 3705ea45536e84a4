//! Rotations whose numbers are rounded to integers on the way: what is rounded is no linear map.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Model, ValueId};

/// By how much rounding may change cos and sin: with eight bits it is 0.004.
const STEP: f64 = 0.02;

/// Weights, which are more, are not compared.
const MOST: usize = 1 << 20;

/// The model without the rounding between `QuantizeLinear` and the `DequantizeLinear` that undoes it;
/// `None` where there is none. Nodes and values that stay keep their numbers. Rounding that changes numbers
/// of the trial run, as cos and sin, by more than `STEP` stays.
pub(super) fn unrounded(model: &Model, trace: &Trace) -> Option<Model> {
    let graph = model.graph();
    let mut out = graph.emitter(graph.main(), "unrounded");
    let mut is_changed = false;
    for (_, node) in graph
        .nodes()
        .filter(|(_, node)| node.is("DequantizeLinear"))
    {
        let (Some(integers), Some(value)) = (node.input(0), node.output(0)) else {
            continue;
        };
        let rounding = graph.producer(integers).map(|(id, _)| graph.node(id));
        let Some(rounding) = rounding.filter(|node| node.is("QuantizeLinear")) else {
            continue;
        };
        let undone = [1, 2]
            .iter()
            .all(|slot| same(graph, rounding.input(*slot), node.input(*slot)));
        let axis = |node: &posenc_ir::Node| node.int("axis").ok().flatten().unwrap_or(1);
        let alike = undone && axis(rounding) == axis(node) && rounding.scope() == node.scope();
        let before = rounding.input(0);
        if let Some(before) = before.filter(|before| alike && !is_coarse(trace, *before, value)) {
            is_changed |= out.redirect(value, before).is_ok();
        }
    }
    if !is_changed {
        return None;
    }
    let mut next = model.clone();
    next.commit(out.finish()).is_ok().then_some(next)
}

/// Whether rounding changes known numbers by more than `STEP`.
fn is_coarse(trace: &Trace, before: ValueId, after: ValueId) -> bool {
    if trace.get(before).elements().is_none_or(|n| n > MOST) {
        return false;
    }
    let [before, after] = [before, after].map(|value| trace.get(value).to_f64());
    before.is_some_and(|before| {
        let difference = |(a, b): (&f64, &f64)| (a - b).abs();
        after.is_none_or(|after| !before.iter().zip(&after).map(difference).all(|d| d <= STEP))
    })
}

/// Whether two inputs are one value, equal constants, or both left out.
fn same(graph: &Graph, a: Option<ValueId>, b: Option<ValueId>) -> bool {
    let number = |v: Option<ValueId>| graph.constant(v?);
    a == b || number(a).is_some_and(|a| number(b).is_some_and(|b| a == b))
}
