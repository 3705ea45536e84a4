//! The part of a summand that does not depend on position: the row of the only token type that a
//! model was exported with, or a bias that is added to the rows of the table.

use ndarray::{ArrayD, ArrayView1, Axis, Slice};
use posenc_ir::eval::{Budget, Value, probe};
use posenc_ir::{Emitter, Node, NodeId, Tensor, ValueId};
use rustc_hash::FxHashMap;

use crate::attention::stream::{Tokens, back};
use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::graph::dataflow::Class;
use crate::graph::operators::{is_copy, is_layout};
use crate::graph::ports::exchanged::{Exchanged, Seeds, exchanged};

/// What remains of a summand without position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remainder {
    /// Nothing: all of it is position.
    Nothing,
    /// This value, which is the same for every token.
    Value(ValueId),
}

/// By which share of the largest number equal rows may differ.
const NEAR: f64 = 1e-6;

/// Room for the values of one probe.
const BUDGET: Budget = Budget { elements: 1 << 22 };

/// The most operators between a summand and what varies with position.
const MAX_STEPS: usize = 64;

/// The remainder of `value`, a summand of `node`, without what varies along `tokens`.
///
/// # Errors
/// If the remainder cannot be computed.
pub(crate) fn remainder(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    node: NodeId,
    value: ValueId,
    tokens: Tokens,
) -> Result<Remainder, RewriteError> {
    let mut search = Search {
        context,
        leaves: vec![],
        known: FxHashMap::default(),
    };
    let refuse = |why: &str| context.refuse(node, why);
    match search.partial(value, tokens, MAX_STEPS) {
        Some(Partial::Nothing) => Ok(Remainder::Nothing),
        Some(Partial::Value(value)) => Ok(Remainder::Value(value)),
        Some(Partial::Mixed) => {
            let why = "cannot separate the encoding from what it is added to";
            let row = search.row(value, tokens).ok_or_else(|| refuse(why))?;
            if row.iter().all(|x| *x == 0.0) {
                return Ok(Remainder::Nothing);
            }
            let values: Vec<f64> = row.iter().copied().collect();
            let tensor = Tensor::from_f64(context.dtype(value), row.shape(), &values);
            Ok(Remainder::Value(out.constant("row", tensor)))
        }
        None => Err(refuse(
            "cannot separate the encoding from what it is computed with",
        )),
    }
}

/// The remainder of a value.
#[derive(Clone, Copy)]
enum Partial {
    Nothing,
    Value(ValueId),
    /// A combination that is not a value of the graph.
    Mixed,
}

struct Search<'a> {
    context: &'a Context<'a>,
    /// Values that consist of position only.
    leaves: Vec<ValueId>,
    /// Remainders computed so far, by value and token axes.
    known: FxHashMap<(ValueId, Tokens), Partial>,
}

impl Search<'_> {
    /// `None` if that takes more than `steps` operators, or if position cannot be told from which
    /// tokens there are.
    fn partial(&mut self, value: ValueId, tokens: Tokens, steps: usize) -> Option<Partial> {
        if let Some(known) = self.known.get(&(value, tokens)) {
            return Some(*known);
        }
        let left = self.compute(value, tokens, steps)?;
        self.known.insert((value, tokens), left);
        Some(left)
    }

    fn compute(&mut self, value: ValueId, tokens: Tokens, steps: usize) -> Option<Partial> {
        if !varies(self.context, value, tokens) {
            return Some(Partial::Value(value));
        }
        let graph = self.context.graph();
        let Some((id, output)) = graph.producer(value) else {
            return self.leaf(value, tokens);
        };
        let steps = steps.checked_sub(1)?;
        let node = graph.node(id);
        let mut inputs = vec![];
        for slot in 0..node.inputs().len() {
            let Some(input) = node.input(slot) else {
                continue;
            };
            let trace = &self.context.found.trace;
            let tokens = back(graph, trace, id, output, slot, tokens);
            let tokens = tokens.filter(|t| varies(self.context, input, *t));
            inputs.push((slot, input, tokens));
        }
        let varying: Vec<_> = inputs
            .iter()
            .filter_map(|(s, v, t)| Some((*s, *v, (*t)?)))
            .collect();
        match (node.domain(), node.op(), &varying[..]) {
            ("", "Add" | "Sum", [_, ..]) => {
                let mut left = Partial::Nothing;
                for (_, input, tokens) in inputs {
                    let part = match tokens {
                        Some(tokens) => self.partial(input, tokens, steps)?,
                        None => Partial::Value(input),
                    };
                    left = match (left, part) {
                        (Partial::Nothing, one) | (one, Partial::Nothing) => one,
                        _ => Partial::Mixed,
                    };
                }
                Some(left)
            }
            (_, _, [(slot, input, tokens)]) if keeps_zeros(node, *slot) => {
                let shifted = match shift(node).and_then(|slot| node.input(slot)) {
                    Some(shift) => Partial::Value(shift),
                    None => Partial::Nothing,
                };
                Some(match self.partial(*input, *tokens, steps)? {
                    Partial::Nothing => shifted,
                    Partial::Value(_) | Partial::Mixed => Partial::Mixed,
                })
            }
            ("", "Sub", [_, ..]) => {
                for (_, input, tokens) in varying {
                    self.partial(input, tokens, steps)?;
                }
                Some(Partial::Mixed)
            }
            _ => self.leaf(value, tokens),
        }
    }

    /// Takes a value for position; `None` for one that tells some tokens from all others, as a flag
    /// for one id does, or that has rows of its own for some tokens.
    fn leaf(&mut self, value: ValueId, tokens: Tokens) -> Option<Partial> {
        let flags = || kinds(self.context, value, tokens) <= FLAGS;
        if self.follows_tokens(value) && (flags() || self.has_rows_for_tokens(value, tokens)?) {
            return None;
        }
        self.leaves.push(value);
        Some(Partial::Nothing)
    }

    /// Whether a value may follow which tokens there are.
    fn follows_tokens(&self, value: ValueId) -> bool {
        let class = self.context.found.classes.of_value(value);
        class.has(Class::PADDING)
    }

    /// Whether other tokens bring rows that are no row of a position: other than those of the trial
    /// run, those that a `Gather` takes out of a table, zero, and one-hot. `None` if that cannot be
    /// computed.
    fn has_rows_for_tokens(&self, value: ValueId, tokens: Tokens) -> Option<bool> {
        let Context { model, found } = *self.context;
        let graph = model.graph();
        let lookup = graph.producer(value).map(|(id, _)| graph.node(id));
        let is_table = |v| !self.follows_tokens(v);
        if lookup.is_some_and(|node| node.is("Gather") && node.input(0).is_some_and(is_table)) {
            return Some(false);
        }
        let base = found.trace.get(value).to_f64()?;
        let features = (0..base.ndim()).rev().find(|axis| !tokens.has(*axis))?;
        let near = NEAR * base.iter().fold(0.0, |a: f64, v| a.max(v.abs()));
        let is_near = |(a, b): (&f64, &f64)| (a - b).abs() <= near;
        for run in exchanged(graph, &found.ports, &found.trace) {
            let other = probe(model, &found.trace, &run.ends, &[value], &BUDGET).ok()?;
            let other = other.first()?.to_f64()?;
            let is_position = |row: ArrayView1<'_, f64>| {
                let mut known = base.lanes(Axis(features)).into_iter();
                let same = |known: ArrayView1<'_, f64>| {
                    known.len() == row.len() && known.iter().zip(row).all(is_near)
                };
                is_zero_or_one_hot(row) || known.any(same)
            };
            if !other.lanes(Axis(features)).into_iter().all(is_position) {
                return Some(true);
            }
        }
        Some(false)
    }

    /// The numbers of `value` with every position set to zero, without the axes along which they
    /// repeat. `None` if they vary along the tokens, or with which tokens there are.
    fn row(&self, value: ValueId, tokens: Tokens) -> Option<ArrayD<f64>> {
        let Context { model, found } = *self.context;
        let mut zeros = FxHashMap::default();
        for leaf in &self.leaves {
            let dims = self.context.dims(*leaf).filter(|d| BUDGET.allows(d))?;
            zeros.insert(*leaf, Value::float(ArrayD::zeros(dims)));
        }
        let numbers = |inputs: &Seeds| {
            let mut seeds = inputs.clone();
            seeds.extend(zeros.clone());
            let got = probe(model, &found.trace, &seeds, &[value], &BUDGET).ok()?;
            got.first()?.to_f64()
        };
        let mut data = numbers(&Seeds::default())?;
        if self.follows_tokens(value) {
            let runs = exchanged(model.graph(), &found.ports, &found.trace);
            let is_same = |run: &Exchanged| numbers(&run.ends).as_ref() == Some(&data);
            if !runs.iter().all(is_same) {
                return None;
            }
        }
        for axis in 0..data.ndim() {
            let first = data.index_axis(Axis(axis), 0);
            if data.axis_iter(Axis(axis)).all(|part| part == first) {
                data = data.slice_axis_move(Axis(axis), Slice::from(0..1));
            } else if tokens.has(axis) {
                return None;
            }
        }
        Some(data)
    }
}

/// Whether a row has zeros alone, but for a single 1: such a row picks one of a table.
fn is_zero_or_one_hot(row: ArrayView1<'_, f64>) -> bool {
    let ones = row.iter().filter(|v| **v == 1.0).count();
    let zeros = row.iter().filter(|v| **v == 0.0).count();
    zeros + ones.min(1) == row.len()
}

/// The different rows of a value that only tells some tokens from others.
const FLAGS: usize = 2;

/// How many different rows tokens have, up to one more than [`FLAGS`].
fn kinds(context: &Context<'_>, value: ValueId, tokens: Tokens) -> usize {
    let Some(data) = context.found.trace.get(value).to_f64() else {
        return 0;
    };
    let mut rows = vec![];
    for axis in tokens.iter().filter(|a| *a < data.ndim()) {
        for row in data.axis_iter(Axis(axis)) {
            if rows.len() <= FLAGS && !rows.contains(&row) {
                rows.push(row);
            }
        }
    }
    rows.len()
}

/// Whether a value differs from token to token in the trial run.
fn varies(context: &Context<'_>, value: ValueId, tokens: Tokens) -> bool {
    let traced = context.found.trace.get(value);
    let Some(dims) = traced.dims.as_deref() else {
        return true;
    };
    let mut axes = tokens
        .iter()
        .filter(|a| dims.get(*a).is_some_and(|n| *n > 1));
    let Some(data) = traced.to_f64() else {
        return axes.next().is_some();
    };
    axes.any(|axis| {
        let first = data.index_axis(Axis(axis), 0);
        data.axis_iter(Axis(axis)).any(|part| part != first)
    })
}

/// Whether a node maps zeros in the input at `slot` to zeros, apart from a shift.
fn keeps_zeros(node: &Node, slot: usize) -> bool {
    match (node.domain(), node.op()) {
        ("", "Mul") => true,
        ("", op) => {
            slot == 0
                && (is_layout(op)
                    || is_copy(op)
                    || matches!(op, "Neg" | "Div" | "Slice")
                    || matches!(op, "MatMul" | "Gemm" | "LayerNormalization")
                    || op.ends_with("uantizeLinear"))
        }
        _ => false,
    }
}

/// The input that a node adds to its result.
fn shift(node: &Node) -> Option<usize> {
    matches!(node.op(), "Gemm" | "LayerNormalization").then_some(2)
}
