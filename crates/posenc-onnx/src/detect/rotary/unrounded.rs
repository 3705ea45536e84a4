//! Rotations whose numbers are rounded to integers on the way: what is rounded is no linear map.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Model, ValueId};

/// By how much rounding may change cos and sin: with eight bits it is 0.004.
const STEP: f64 = 0.02;

/// Weights, which are more, are not compared.
const MOST: usize = 1 << 20;

/// The model without the rounding that changes numbers of the trial run, as cos and sin, by no more than
/// `STEP`; `None` where there is none. Nodes and values that stay keep their numbers.
pub(crate) fn unrounded(model: &Model, trace: &Trace) -> Option<Model> {
    without(model, &fine(model.graph(), trace))
}

/// What [`unrounded`] leaves out.
pub(crate) fn fine(graph: &Graph, trace: &Trace) -> Vec<Rounding> {
    let all = roundings(graph).into_iter();
    all.filter(|pair| !is_coarse(trace, pair)).collect()
}

/// A number before `QuantizeLinear`, and that after the `DequantizeLinear` which undoes it.
pub(crate) struct Rounding {
    pub(crate) before: ValueId,
    pub(crate) after: ValueId,
}

/// The model without these; `None` where there are none.
pub(crate) fn without(model: &Model, roundings: &[Rounding]) -> Option<Model> {
    let graph = model.graph();
    let mut out = graph.emitter(graph.main(), "unrounded");
    let mut is_changed = false;
    for Rounding { before, after } in roundings {
        is_changed |= out.redirect(*after, *before).is_ok();
    }
    if !is_changed {
        return None;
    }
    let mut next = model.clone();
    next.commit(out.finish()).is_ok().then_some(next)
}

/// All of a model.
pub(super) fn roundings(graph: &Graph) -> Vec<Rounding> {
    let mut all = vec![];
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
        if let Some(before) = rounding.input(0).filter(|_| alike) {
            let after = value;
            all.push(Rounding { before, after });
        }
    }
    all
}

/// Whether rounding changes known numbers by more than `STEP`.
fn is_coarse(trace: &Trace, rounding: &Rounding) -> bool {
    rounding.change(trace).is_some_and(|change| change > STEP)
}

impl Rounding {
    /// By how much it changes numbers at most; `None` where they are not known, or are weights.
    pub(super) fn change(&self, trace: &Trace) -> Option<f64> {
        let count = trace.get(self.before).elements();
        count.filter(|n| *n <= MOST)?;
        let before = trace.get(self.before).to_f64()?;
        let Some(after) = trace.get(self.after).to_f64() else {
            return Some(f64::INFINITY);
        };
        let change = |(a, b): (&f64, &f64)| match (a - b).abs() {
            change if change.is_nan() => f64::INFINITY,
            change => change,
        };
        Some(before.iter().zip(&after).map(change).fold(0.0, f64::max))
    }
}

/// Whether two inputs are one value, equal constants, or both left out.
fn same(graph: &Graph, a: Option<ValueId>, b: Option<ValueId>) -> bool {
    let number = |v: Option<ValueId>| graph.constant(v?);
    a == b || number(a).is_some_and(|a| number(b).is_some_and(|b| a == b))
}
