//! Nodes that rotate queries or keys, in each form.

use posenc_encodings::families::rope::Rotary;
use posenc_encodings::kind::{Form, Layout};
use posenc_encodings::laws;
use posenc_encodings::rotation::Shape;
use posenc_ir::{Attr, Emitter, ScopeId, Tensor, ValueId};
use rustc_hash::FxHashMap;

use super::waves::{CONTRIB, HalfWaves};
use crate::detect::RotaryOperand;
use crate::detect::context::Context;
use crate::edit::insert::{align, batch_axis, by_heads};
use crate::edit::rescale::sequences::of_every_sequence;
use crate::graph::lane::Lane;

/// The base of the frequencies, which the nodes do not contain.
const ANY: f64 = 10_000.0;

/// What was written so far.
pub(super) struct Rotated<'a> {
    context: &'a Context<'a>,
    form: Form,
    /// cos and sin as plain operators read them.
    aligned: FxHashMap<Aligned, [ValueId; 2]>,
    /// cos and sin of every sequence.
    repeated: FxHashMap<([ValueId; 2], ScopeId), [ValueId; 2]>,
    /// Rows of cos and sin, and the row of each token.
    rows: FxHashMap<([ValueId; 2], ScopeId), [ValueId; 3]>,
}

/// What tells cos and sin of plain operators apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Aligned {
    /// Those of the pairs.
    waves: [ValueId; 2],
    layout: Layout,
    /// Features of a head.
    head_dim: usize,
    /// The axes that they have of a value of this rank.
    axes: Vec<usize>,
    rank: usize,
    scope: ScopeId,
}

/// What is to be rotated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unrotated {
    /// The value, with the axes of the output of the region.
    pub(super) value: ValueId,
    /// Which of its features rotate together.
    pub(super) layout: Layout,
    /// How many heads it has, where the output of the region holds keys and values too.
    pub(super) heads: Option<usize>,
}

/// How an operator reads tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// `[batch, head, token, feature]`.
    Heads,
    /// `[batch, token, hidden]`.
    Hidden,
    /// `[batch, token, head, feature]`, for which hidden features are merged.
    Merged,
}

impl<'a> Rotated<'a> {
    pub(super) fn new(context: &'a Context<'a>, form: Form) -> Self {
        Self {
            context,
            form,
            aligned: FxHashMap::default(),
            repeated: FxHashMap::default(),
            rows: FxHashMap::default(),
        }
    }

    /// What takes the place of the output of a region, of the same without rotation; `None` where the order
    /// of its axes does not allow it.
    pub(super) fn of(
        &mut self,
        out: &mut Emitter<'_>,
        side: &RotaryOperand,
        own: Unrotated,
        waves: &HalfWaves,
    ) -> Option<ValueId> {
        let region = &side.region;
        let lane = region.output_lane;
        let head_dim = lane.width(self.context.dims(region.output)?)?;
        let rotary = Rotary {
            rope: laws::Rope::new(ANY, 2 * side.rotation.rope.pairs.len(), head_dim).ok()?,
            layout: own.layout,
        };
        if lane.offset != 0 {
            return None;
        }
        let dtype = self.context.dtype(region.output);
        // What is rotated in another type gets that of cos and sin.
        let is_cast = dtype != waves.dtype;
        let x = match is_cast {
            true => out.cast(own.value, waves.dtype),
            false => own.value,
        };
        let y = match self.form {
            Form::Ops => self.operators(out, (x, region.output, lane), rotary, waves)?,
            Form::Onnx | Form::Contrib => {
                let x = Unrotated { value: x, ..own };
                self.fused(out, (x, region.output, lane), rotary, waves)?
            }
        };
        Some(if is_cast { out.cast(y, dtype) } else { y })
    }

    /// Plain operators.
    fn operators(
        &mut self,
        out: &mut Emitter<'_>,
        (x, like, lane): (ValueId, ValueId, Lane),
        rotary: Rotary,
        waves: &HalfWaves,
    ) -> Option<ValueId> {
        let (context, opset) = (self.context, self.context.opset());
        let dims = context.dims(like)?;
        let feature = lane.feature?;
        let is_split = lane.group.is_some();
        let shape = Shape {
            rank: dims.len() + usize::from(is_split),
            feature: feature + usize::from(is_split),
        };
        let mut axes = vec![lane.sequence, shape.feature];
        if waves.by_sequence {
            axes.insert(0, batch_axis(context, like, &lane)?);
        }
        let key = Aligned {
            waves: waves.values,
            layout: rotary.layout,
            head_dim: rotary.rope.head_dim,
            axes,
            rank: shape.rank,
            scope: out.scope_of(x),
        };
        let aligned = match self.aligned.get(&key) {
            Some(known) => *known,
            None => {
                let columns = rotary.emit_columns(out, opset, waves.values, 1);
                let aligned = columns.map(|wave| {
                    let wave = match waves.by_sequence {
                        true => wave,
                        false => opset.squeeze(out, wave, &[0]),
                    };
                    align(out, opset, wave, &key.axes, shape.rank)
                });
                self.aligned.insert(key, aligned);
                aligned
            }
        };
        let heads = (lane, rotary.rope.head_dim);
        Some(by_heads(out, x, heads, |out, x| {
            rotary.emit_rotated(out, opset, x, shape, aligned)
        }))
    }

    /// One operator.
    fn fused(
        &mut self,
        out: &mut Emitter<'_>,
        (x, like, lane): (Unrotated, ValueId, Lane),
        rotary: Rotary,
        waves: &HalfWaves,
    ) -> Option<ValueId> {
        let dims = self.context.dims(like)?;
        let order = order(dims, &lane)?;
        // Sequences and heads may share the first axis.
        if batch_axis(self.context, like, &lane) != Some(0) {
            return None;
        }
        let head_dim = rotary.rope.head_dim as i64;
        let heads = match order {
            Order::Heads => dims[1],
            Order::Hidden => x.heads.unwrap_or(dims[2] / rotary.rope.head_dim),
            Order::Merged => dims[2],
        };
        let mut attributes = vec![];
        if rotary.layout == Layout::Interleaved {
            attributes.push(("interleaved", Attr::Int(1)));
        }
        let is_part = rotary.rope.rotary_dim < rotary.rope.head_dim;
        if is_part || order != Order::Heads {
            attributes.push(("num_heads", Attr::Int(heads as i64)));
        }
        if is_part {
            let width = Attr::Int(rotary.rope.rotary_dim as i64);
            attributes.push(("rotary_embedding_dim", width));
        }
        let mut tokens = x.value;
        if order == Order::Merged {
            let hidden = out.ints("hidden", &[0, 0, -1]);
            tokens = out.op("Reshape", &[x.value, hidden]);
        }
        let rotated = match self.form {
            Form::Contrib => {
                let [cos, sin, row] = self.rows(out, tokens, waves);
                let inputs = [tokens, row, cos, sin].map(Some);
                let made = out.node(CONTRIB, "RotaryEmbedding", &inputs, &attributes, 1);
                made.into_iter().next()?
            }
            Form::Onnx | Form::Ops => {
                let [cos, sin] = self.repeated(out, tokens, waves);
                out.op_with("RotaryEmbedding", &[tokens, cos, sin], &attributes)
            }
        };
        if order != Order::Merged {
            return Some(rotated);
        }
        let apart = out.ints("heads", &[0, 0, -1, head_dim]);
        Some(out.op("Reshape", &[rotated, apart]))
    }

    /// cos and sin of every sequence of a batch.
    fn repeated(
        &mut self,
        out: &mut Emitter<'_>,
        tokens: ValueId,
        waves: &HalfWaves,
    ) -> [ValueId; 2] {
        let key = (waves.values, out.scope_of(tokens));
        *self.repeated.entry(key).or_insert_with(|| {
            // Positions of one sequence may be given for all.
            let dims = of_every_sequence(out, tokens, 3);
            waves.values.map(|wave| out.op("Expand", &[wave, dims]))
        })
    }

    /// cos and sin as rows `[row, pair]`, and the row of each token `[sequence, token]`: the same for every
    /// sequence where they share rows.
    fn rows(&mut self, out: &mut Emitter<'_>, tokens: ValueId, waves: &HalfWaves) -> [ValueId; 3] {
        let key = (waves.values, out.scope_of(tokens));
        *self.rows.entry(key).or_insert_with(|| {
            let flat = out.ints("rows", &[-1, waves.pairs as i64]);
            let [cos, sin] = waves.values.map(|wave| out.op("Reshape", &[wave, flat]));
            let [zero, one] = [0, 1].map(|n| Tensor::from_i64(&[], &[n]));
            let (zero, one) = (out.constant("zero", zero), out.constant("one", one));
            let count = out.op("Shape", &[cos]);
            let count = out.op("Gather", &[count, zero]);
            let rows = out.op("Range", &[zero, count, one]);
            let dims = out.op("Shape", &[waves.values[0]]);
            let [start, end] = [0, 2].map(|n| out.ints("bound", &[n]));
            let dims = out.op("Slice", &[dims, start, end]);
            let rows = out.op("Reshape", &[rows, dims]);
            let all = of_every_sequence(out, tokens, 2);
            [cos, sin, out.op("Expand", &[rows, all])]
        })
    }
}

/// How an operator would read a value of these dimensions; `None` where it cannot.
fn order(dims: &[usize], lane: &Lane) -> Option<Order> {
    match (dims.len(), lane.sequence, lane.feature?, lane.group) {
        (4, 2, 3, None) => Some(Order::Heads),
        (3, 1, 2, _) => Some(Order::Hidden),
        (4, 1, 3, None) => Some(Order::Merged),
        _ => None,
    }
}
