//! The cosines and sines of the pairs, as values of the graph.

use ndarray::{ArrayD, Axis};
use posenc_encodings::kind::Layout;
use posenc_ir::eval::{Budget, Trace};
use posenc_ir::{Attr, DType, Emitter, NodeId, ScopeId, Tensor, ValueId};
use rustc_hash::FxHashMap;

use crate::detect::context::Context;
use crate::detect::{RotaryOperand, run_at};
use crate::graph::ports::Lengths;

/// The domain of the operators of ONNX Runtime.
pub(super) const CONTRIB: &str = "com.microsoft";

/// Elements of shapes and positions that are computed.
const BUDGET: Budget = Budget { elements: 1 << 16 };

/// cos and sin of the pairs.
#[derive(Clone, Copy, Debug)]
pub(super) struct HalfWaves {
    /// cos and sin, `[sequence, token, pair]`, times the factor of the rotation.
    pub(super) values: [ValueId; 2],
    /// Whether sequences of a batch have rows of their own; they share them otherwise, and there is one
    /// sequence.
    pub(super) by_sequence: bool,
    /// How many pairs there are.
    pub(super) pairs: usize,
    /// Their type.
    pub(super) dtype: DType,
}

/// What was written of them so far.
pub(super) struct Waves<'a> {
    context: &'a Context<'a>,
    /// A run with another sequence.
    run: Option<Trace>,
    /// By what they are computed from, the layout and the scope.
    known: FxHashMap<(Vec<ValueId>, Layout, ScopeId), HalfWaves>,
}

/// cos and sin as a graph has them: see [`HalfWaves`].
struct Source {
    values: [ValueId; 2],
    by_sequence: bool,
    dtype: DType,
}

/// Where a value has the cosines or the sines of the pairs.
#[derive(Clone, Copy, Debug)]
struct Columns {
    value: ValueId,
    /// The axis of tokens.
    tokens: usize,
    /// The columns of the pairs, if they are not all: to the first so many, or every second one.
    part: Part,
    /// Whether they have the other sign.
    negative: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    All,
    FirstHalf,
    EverySecond,
}

impl<'a> Waves<'a> {
    pub(super) fn new(context: &'a Context<'a>) -> Self {
        let of_batch = Lengths {
            batch: context.found.lengths.batch + 1,
            ..context.found.lengths
        };
        Self {
            context,
            run: run_at(context.model, context.found, of_batch, &BUDGET),
            known: FxHashMap::default(),
        }
    }

    /// Those of one rotation.
    ///
    /// # Errors
    /// Where no values of the graph hold them.
    pub(super) fn of(
        &mut self,
        out: &mut Emitter<'_>,
        side: &RotaryOperand,
        layout: Layout,
    ) -> Result<HalfWaves, String> {
        let graph = self.context.graph();
        let id = side.region.entries[0].node;
        let node = graph.node(id);
        let is_fused = node.op() == "RotaryEmbedding";
        let entries = side.region.entries.iter();
        let from: Vec<ValueId> = match is_fused {
            true => node.inputs().iter().skip(1).flatten().copied().collect(),
            false => entries
                .filter_map(|at| graph.node(at.node).input(at.slot()))
                .collect(),
        };
        let key = (from, layout, node.scope());
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        out.set_scope(node.scope());
        let made = match (is_fused, node.domain()) {
            (true, "") => self.of_standard(out, id),
            (true, CONTRIB) => self.of_contrib(out, side, id),
            _ => self.of_operators(out, side, layout),
        };
        let Source {
            values,
            by_sequence,
            dtype,
        } = made?;
        let made = HalfWaves {
            values,
            by_sequence,
            pairs: side.rotation.rope.pairs.len(),
            dtype,
        };
        self.known.insert(key, made);
        Ok(made)
    }

    /// Whether an axis is that of the sequences of a batch.
    fn is_batch(&self, value: ValueId, axis: usize) -> bool {
        let batch = self.context.found.lengths.batch;
        let size = |dims: Option<&[usize]>| dims.and_then(|dims| dims.get(axis)).copied();
        let wide = self.run.as_ref().map(|run| run.get(value));
        let wide = wide.and_then(|value| value.dims.as_deref());
        size(self.context.dims(value)) == Some(batch) && size(wide) == Some(batch + 1)
    }

    /// Those of the standard operator: of each token, or rows that positions pick.
    fn of_standard(&self, out: &mut Emitter<'_>, id: NodeId) -> Result<Source, String> {
        let node = self.context.graph().node(id);
        let [cos, sin] = tables(node.input(1), node.input(2))?;
        let dtype = self.context.dtype(cos);
        Ok(match node.input(3) {
            Some(positions) => Source {
                values: [cos, sin].map(|table| out.op("Gather", &[table, positions])),
                by_sequence: true,
                dtype,
            },
            None => Source {
                values: [cos, sin],
                by_sequence: self.is_batch(cos, 0),
                dtype,
            },
        })
    }

    /// Those of the operator of ONNX Runtime: rows that positions pick, or from a position on.
    fn of_contrib(
        &self,
        out: &mut Emitter<'_>,
        side: &RotaryOperand,
        id: NodeId,
    ) -> Result<Source, String> {
        let node = self.context.graph().node(id);
        let [cos, sin] = tables(node.input(2), node.input(3))?;
        let positions = node.input(1).ok_or("it has no positions")?;
        let scale = node.float("scale").map_err(|e| e.to_string())?;
        let packed = node.int("is_packed_batching").map_err(|e| e.to_string())?;
        if scale.is_some_and(|scale| scale != 1.0) || packed.is_some_and(|flag| flag != 0) {
            return Err("it has a scale, or sequences of different lengths in one".to_owned());
        }
        let dtype = self.context.dtype(cos);
        if self.context.dims(positions).map(<[usize]>::len) == Some(2) {
            return Ok(Source {
                values: [cos, sin].map(|table| out.op("Gather", &[table, positions])),
                by_sequence: true,
                dtype,
            });
        }
        let int =
            |out: &mut Emitter<'_>, label, n: i64| out.constant(label, Tensor::from_i64(&[], &[n]));
        let shape = out.op("Shape", &[side.region.input]);
        let axis = int(out, "axis", side.region.input_lane.sequence as i64);
        let count = out.op("Gather", &[shape, axis]);
        let (zero, one) = (int(out, "zero", 0), int(out, "one", 1));
        let counted = out.op("Range", &[zero, count, one]);
        let rows = out.op("Add", &[counted, positions]);
        let opset = self.context.opset();
        let values = [cos, sin].map(|table| {
            let rows = out.op("Gather", &[table, rows]);
            opset.unsqueeze(out, rows, &[0])
        });
        Ok(Source {
            values,
            by_sequence: false,
            dtype,
        })
    }

    /// Those that plain operators multiply with.
    fn of_operators(
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
            let parts: &[Part] = match dims[last] {
                n if n == pairs => &[Part::All],
                n if n == 2 * pairs && layout == Layout::Half => &[Part::FirstHalf],
                n if n == 2 * pairs => &[Part::EverySecond],
                _ => continue,
            };
            let off = tolerance(self.context.dtype(value)) * factor;
            // Every sequence has rows of the same kind.
            let mut rows = numbers;
            for other in (0..last).rev().filter(|other| *other != axis) {
                rows = rows.index_axis_move(Axis(other), 0);
            }
            for part in parts {
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
                            part: *part,
                            negative,
                        });
                    }
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
        let mut half = value;
        match columns.part {
            Part::All => {}
            Part::FirstHalf => {
                let bounds = [0, pairs as i64, last as i64];
                let [start, end, axis] = bounds.map(|n| out.ints("bound", &[n]));
                half = out.op("Slice", &[half, start, end, axis]);
            }
            Part::EverySecond => {
                let every: Vec<i64> = (0..pairs as i64).map(|i| 2 * i).collect();
                let every = out.ints("every_second", &every);
                let axis = [("axis", Attr::Int(last as i64))];
                half = out.op_with("Gather", &[half, every], &axis);
            }
        }
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

/// The tables of a fused operator.
fn tables(cos: Option<ValueId>, sin: Option<ValueId>) -> Result<[ValueId; 2], String> {
    match (cos, sin) {
        (Some(cos), Some(sin)) => Ok([cos, sin]),
        _ => Err("it has no cosines and sines".to_owned()),
    }
}

impl Part {
    fn column(self, pair: usize) -> usize {
        match self {
            Self::All | Self::FirstHalf => pair,
            Self::EverySecond => 2 * pair,
        }
    }
}

/// By how much numbers of a type may differ from those that were read.
fn tolerance(dtype: DType) -> f64 {
    4.0 * dtype.epsilon().unwrap_or(f64::EPSILON) + 1e-5
}
