//! Positions that operators of attention count themselves, or are given.

use posenc_ir::{DType, Emitter, Node, Tensor, ValueId};
use rustc_hash::FxHashMap;

use crate::detect::RotaryOperand;
use crate::detect::context::Context;
use crate::edit::insert::{Axes, Length, Lengths, ValueAxis, positions_up_to};
use crate::graph::region::Inside;

/// The input of `GroupQueryAttention` that is the number of all tokens.
const TOTAL: usize = 6;

/// Its input that holds the position of each token.
const GIVEN: usize = 9;

/// Those that were written so far.
pub(super) struct Counted<'a> {
    axes: Axes<'a>,
    lengths: Lengths,
    /// By what they are computed of, the last index of each sequence or what is given, and the number of new tokens.
    known: FxHashMap<(ValueId, Length), ValueId>,
}

impl<'a> Counted<'a> {
    pub(super) fn new(context: &'a Context<'a>) -> Self {
        Self {
            axes: Axes::new(context),
            lengths: Lengths::default(),
            known: FxHashMap::default(),
        }
    }

    /// The position of each token `[sequence, token]` of queries or keys.
    ///
    /// # Errors
    /// Where the operator has no input for the last index of each sequence.
    pub(super) fn positions(
        &mut self,
        out: &mut Emitter<'_>,
        side: &RotaryOperand,
        inside: &Inside,
    ) -> Result<ValueId, String> {
        let node = self.axes.context.graph().node(side.region.entries[0].node);
        let is_grouped = node.op() == "GroupQueryAttention";
        let given = node.input(GIVEN).filter(|_| is_grouped);
        let from = given.or(inside.positions).ok_or("it has no positions")?;
        let tokens = ValueAxis {
            value: side.region.input,
            axis: side.region.input_lane.sequence,
        };
        let length = Length::of(&self.axes, tokens);
        if let Some(known) = self.known.get(&(from, length)) {
            return Ok(*known);
        }
        let made = match given {
            Some(ids) => self.of_ids(out, node, ids, length)?,
            // In a first prompt, the operator counts from 0 in every sequence, also in a shorter one.
            None => positions_up_to(out, self.axes.context, &mut self.lengths, from, length),
        };
        self.known.insert((from, length), made);
        Ok(made)
    }

    /// The positions that ONNX Runtime reads where the operator is given some: in a first prompt it counts from the
    /// first of the first sequence in all of them, and behind a cache it takes each.
    fn of_ids(
        &mut self,
        out: &mut Emitter<'_>,
        node: &Node,
        ids: ValueId,
        length: Length,
    ) -> Result<ValueId, String> {
        let context = self.axes.context;
        let total = node.input(TOTAL).ok_or("it has no number of all tokens")?;
        let scopes = [ids, total].map(|v| context.graph().value(v).scope());
        let scope = context.inner([context.inner(scopes), length.scope(context)]);
        let tokens = self.lengths.scalar(out, context, length);
        out.set_scope(scope);
        let [zero, one] = [0, 1].map(|n| out.constant("scalar", Tensor::from_i64(&[], &[n])));
        let indices = out.op("Range", &[zero, tokens, one]);
        let list = out.ints("list", &[-1]);
        let all = out.op("Reshape", &[ids, list]);
        let first = out.op("Gather", &[all, zero]);
        let counted = out.op("Add", &[first, indices]);
        let total = out.cast(total, DType::I64);
        let is_prompt = out.op("Equal", &[total, tokens]);
        Ok(out.op("Where", &[is_prompt, counted, ids]))
    }
}
