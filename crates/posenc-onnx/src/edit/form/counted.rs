//! Positions that operators of attention count themselves.

use posenc_ir::{Emitter, ValueId};
use rustc_hash::FxHashMap;

use crate::detect::RotaryOperand;
use crate::detect::context::Context;
use crate::edit::insert::{Axes, Length, Lengths, ValueAxis, positions_up_to};
use crate::graph::region::Inside;

/// Those that were written so far.
pub(super) struct Counted<'a> {
    axes: Axes<'a>,
    lengths: Lengths,
    /// By the last index of each sequence and the number of new tokens.
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
        let last = inside.positions.ok_or("it has no positions")?;
        let tokens = ValueAxis {
            value: side.region.input,
            axis: side.region.input_lane.sequence,
        };
        let length = Length::of(&self.axes, tokens);
        if let Some(known) = self.known.get(&(last, length)) {
            return Ok(*known);
        }
        // In a first prompt, the operator counts from 0 in every sequence, also in a shorter one.
        let made = positions_up_to(out, self.axes.context, &mut self.lengths, last, length);
        self.known.insert((last, length), made);
        Ok(made)
    }
}
