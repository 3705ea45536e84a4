//! What tables add at every position, in runs that read all of them.

use ndarray::{Array2, ArrayD};
use posenc_ir::ValueId;
use posenc_ir::eval::{Budget, Trace};

use super::frames::Frames;
use crate::detect::context::Context;
use crate::detect::run_at;
use crate::graph::ports::Lengths;

/// Elements that a value of a run at a length of the tables may have.
pub(super) const MOST: Budget = Budget { elements: 1 << 26 };

/// Trial runs of one sequence without a cache, in which every position of a table is read.
pub(super) struct TableRuns<'a> {
    context: &'a Context<'a>,
    length: usize,
    /// The elements of the inputs, in the order in which they are tried.
    sequences: Vec<usize>,
    /// The run of each.
    made: Vec<Option<Option<Trace>>>,
}

impl<'a> TableRuns<'a> {
    pub(super) fn new(context: &'a Context<'a>, length: usize, frames: Option<&Frames>) -> Self {
        let sequences = match frames {
            Some(frames) => frames.for_tokens(context, length).into_iter().collect(),
            // Another stack may have one token more.
            None => vec![length, length.saturating_sub(1)],
        };
        Self {
            context,
            length,
            made: vec![None; sequences.len()],
            sequences,
        }
    }

    /// See [`rows`].
    pub(super) fn rows(&mut self, value: ValueId, reserved: usize) -> Option<Array2<f64>> {
        let (context, length) = (self.context, self.length);
        let made = self.made.iter_mut().zip(&self.sequences);
        let mut all = made.filter_map(|(made, sequence)| {
            let wanted = Lengths {
                batch: 1,
                sequence: *sequence,
                past: 0,
            };
            let run =
                made.get_or_insert_with(|| run_at(context.model, context.found, wanted, &MOST));
            rows(run.as_ref()?, value, length, reserved)
        });
        all.next()
    }
}

/// What is added at the first `length` positions, `[position, feature]`; of a table that an operator
/// reads itself, its rows after those that are reserved.
fn rows(run: &Trace, value: ValueId, length: usize, reserved: usize) -> Option<Array2<f64>> {
    let data = run.get(value).to_f64()?;
    let (dim, others) = data.shape().split_last()?;
    let first = |count: usize| match count {
        n if n == length => Some(0),
        n if n == length + reserved => Some(reserved),
        _ => None,
    };
    // Positions may be before sequences.
    let axis = (0..others.len())
        .rev()
        .find(|axis| first(others[*axis]).is_some())?;
    let (count, dim, first) = (others[axis], *dim, first(others[axis])?);
    let order = (0..others.len()).filter(|other| *other != axis);
    let order: Vec<usize> = order.chain([axis, others.len()]).collect();
    let copies = by_copy(data.permuted_axes(order), count, dim)?;
    let one = copies.first()?;
    if copies.iter().any(|other| other != one) {
        return None;
    }
    Some(one.slice(ndarray::s![first.., ..]).to_owned())
}

/// Each `[position, feature]` of an array with further axes.
pub(super) fn by_copy(data: ArrayD<f64>, count: usize, dim: usize) -> Option<Vec<Array2<f64>>> {
    let copies = data.len() / (count * dim).max(1);
    let flat = data.as_standard_layout().into_owned();
    let flat = flat.into_shape_with_order((copies, count, dim)).ok()?;
    Some(flat.outer_iter().map(|copy| copy.to_owned()).collect())
}
