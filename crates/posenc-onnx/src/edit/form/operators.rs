//! The cosines and sines that plain operators multiply with.

use ndarray::{ArrayD, Axis};
use posenc_encodings::kind::Layout;
use posenc_ir::{Attr, DType, Emitter, ValueId};

use super::waves::{Source, Waves};
use crate::detect::RotaryOperand;
use crate::detect::context::Context;
use crate::graph::operators::{is_copy, is_layout};

/// Where a value has the cosines or the sines of the pairs.
#[derive(Clone, Copy, Debug)]
struct Columns {
    value: ValueId,
    /// The axis of tokens.
    tokens: usize,
    /// The columns of the pairs, if they are not all: to the first so many, or every second one.
    part: PairColumns,
    /// Whether they have the other sign.
    negative: bool,
}

/// The columns that hold the numbers of the pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PairColumns {
    All,
    FirstHalf,
    EverySecond,
}

impl Waves<'_> {
    /// Those that plain operators multiply with.
    pub(super) fn of_operators(
        &self,
        out: &mut Emitter<'_>,
        side: &RotaryOperand,
        layout: Layout,
    ) -> Result<Source, String> {
        let rotation = &side.rotation;
        let found = [&rotation.cos, &rotation.sin].map(|wave| {
            let wave = wave.clone().into_dyn();
            self.columns(side, &wave, layout)
        });
        let [Some(cos), Some(sin)] = found else {
            let why = "its cosines and sines were not found as values of the graph";
            return Err(why.to_owned());
        };
        self.check_others(side, [cos.value, sin.value])?;
        let pairs = rotation.rope.pairs.len();
        let dtype = self.context.dtype(cos.value);
        let (cos, by_sequence) = self.half(out, cos, pairs)?;
        let (sin, sin_by_sequence) = self.half(out, sin, pairs)?;
        if by_sequence != sin_by_sequence {
            return Err("its cosines and sines have different axes".to_owned());
        }
        Ok(Source {
            values: [cos, sin],
            by_sequence,
            dtype,
        })
    }

    /// Refuses a rotation that depends on more than these cosines and sines: what chooses, masks or scales was
    /// seen for the tokens of one run alone.
    fn check_others(&self, side: &RotaryOperand, waves: [ValueId; 2]) -> Result<(), String> {
        let (graph, classes) = (self.context.graph(), &self.context.found.classes);
        let known = waves.map(|wave| self.origin(wave));
        let others = side.region.others(graph, classes);
        let mut others = others.into_iter().map(|(_, value)| value);
        match others.find(|value| !known.contains(&self.origin(*value))) {
            Some(other) => Err(format!(
                "it depends on {} too, which is no part of its cosines and sines",
                graph.name(other)
            )),
            None => Ok(()),
        }
    }

    /// What a value is a part of: where it comes from by moving, repeating or negating numbers.
    fn origin(&self, mut value: ValueId) -> ValueId {
        while let Some(before) = moved(self.context, value) {
            value = before;
        }
        value
    }

    /// The value and its columns that are these numbers `[token, pair]`.
    fn columns(&self, side: &RotaryOperand, wave: &ArrayD<f64>, layout: Layout) -> Option<Columns> {
        let graph = self.context.graph();
        let entries = side.region.entries.iter();
        let values = entries.filter_map(|at| graph.node(at.node).input(at.slot()));
        let (tokens, pairs) = (wave.shape()[0], wave.shape()[1]);
        let factor = side.rotation.rope.attention_factor.abs();
        for value in values {
            let Some(numbers) = self.context.found.trace.get(value).to_f64() else {
                continue;
            };
            let dims = numbers.shape().to_vec();
            let Some(last) = dims.len().checked_sub(1) else {
                continue;
            };
            let is_of_tokens = |axis: &usize| dims[*axis] == tokens;
            let Some(axis) = (0..last).rev().find(is_of_tokens) else {
                continue;
            };
            let mut others = (0..last).filter(|other| *other != axis);
            if others.any(|other| dims[other] != 1 && !self.is_batch(value, other)) {
                continue;
            }
            let Some(part) = PairColumns::of(dims[last], pairs, layout) else {
                continue;
            };
            let off = tolerance(self.context.dtype(value)) * factor;
            // Every sequence has rows of the same kind.
            let mut rows = numbers;
            for other in (0..last).rev().filter(|other| *other != axis) {
                rows = rows.index_axis_move(Axis(other), 0);
            }
            for negative in [false, true] {
                let is_own = (0..tokens).all(|row| {
                    (0..pairs).all(|pair| {
                        let got = rows[[row, part.column(pair)]];
                        let got = if negative { -got } else { got };
                        (got - wave[[row, pair]]).abs() <= off
                    })
                });
                if is_own {
                    return Some(Columns {
                        value,
                        tokens: axis,
                        part,
                        negative,
                    });
                }
            }
        }
        None
    }

    /// `[sequence, token, pair]`, and whether sequences have rows of their own.
    fn half(
        &self,
        out: &mut Emitter<'_>,
        columns: Columns,
        pairs: usize,
    ) -> Result<(ValueId, bool), String> {
        let Columns { value, tokens, .. } = columns;
        let opset = self.context.opset();
        let rank = self.context.dims(value).map_or(0, <[usize]>::len);
        let last = rank - 1;
        let batch = (0..last).find(|axis| *axis != tokens && self.is_batch(value, *axis));
        if batch.is_some_and(|batch| batch > tokens) {
            return Err("its cosines and sines have tokens before sequences".to_owned());
        }
        let mut half = columns.part.cut(out, value, pairs, last);
        let gone = (0..last).filter(|axis| *axis != tokens && Some(*axis) != batch);
        let gone: Vec<i64> = gone.map(|axis| axis as i64).collect();
        if !gone.is_empty() {
            half = opset.squeeze(out, half, &gone);
        }
        if batch.is_none() {
            half = opset.unsqueeze(out, half, &[0]);
        }
        if columns.negative {
            half = out.op("Neg", &[half]);
        }
        Ok((half, batch.is_some()))
    }
}

impl PairColumns {
    /// Those of a value with so many columns; `None` where they are neither those of the pairs nor of both features
    /// of each.
    pub(super) fn of(columns: usize, pairs: usize, layout: Layout) -> Option<Self> {
        match layout {
            _ if columns == pairs => Some(Self::All),
            _ if columns != 2 * pairs => None,
            Layout::Half => Some(Self::FirstHalf),
            Layout::Interleaved => Some(Self::EverySecond),
        }
    }

    /// The column of a pair.
    pub(super) fn column(self, pair: usize) -> usize {
        match self {
            Self::All | Self::FirstHalf => pair,
            Self::EverySecond => 2 * pair,
        }
    }

    /// These columns of a value, which are on this axis.
    pub(super) fn cut(
        self,
        out: &mut Emitter<'_>,
        value: ValueId,
        pairs: usize,
        axis: usize,
    ) -> ValueId {
        match self {
            Self::All => value,
            Self::FirstHalf => {
                let bounds = [0, pairs as i64, axis as i64];
                let [start, end, axis] = bounds.map(|n| out.ints("bound", &[n]));
                out.op("Slice", &[value, start, end, axis])
            }
            Self::EverySecond => {
                let every: Vec<i64> = (0..pairs as i64).map(|i| 2 * i).collect();
                let every = out.ints("every_second", &every);
                out.op_with(
                    "Gather",
                    &[value, every],
                    &[("axis", Attr::Int(axis as i64))],
                )
            }
        }
    }
}

/// What a value has the numbers of, all or some of them, in another order or with another sign.
pub(super) fn moved(context: &Context<'_>, value: ValueId) -> Option<ValueId> {
    let graph = context.graph();
    let (id, _) = graph.producer(value)?;
    let node = graph.node(id);
    let class = |v: &ValueId| context.found.classes.of_value(*v);
    let inputs: Vec<ValueId> = node.inputs().iter().flatten().copied().collect();
    let (first, rest) = inputs.split_first().filter(|_| node.domain().is_empty())?;
    let is_fixed = |v: &ValueId| class(v).is_constant() || class(v).is_length();
    let is_own = match node.op() {
        op if is_layout(op) || is_copy(op) => true,
        "Neg" => true,
        "Slice" | "Split" | "Gather" => rest.iter().all(is_fixed),
        // A copy of one part beside another.
        "Concat" => rest.iter().all(|v| v == first),
        "Mul" => {
            let mut others = inputs.iter().filter(|v| !class(v).is_constant());
            return others.next().copied().filter(|_| others.next().is_none());
        }
        _ => false,
    };
    is_own.then_some(*first)
}

/// By how much numbers of a type may differ from those that were read.
pub(super) fn tolerance(dtype: DType) -> f64 {
    4.0 * dtype.epsilon().unwrap_or(f64::EPSILON) + 1e-5
}
