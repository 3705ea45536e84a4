//! Axis roles: which axis of a value is the sequence and which the features of a head, carried
//! from a node's output back to its inputs.
//!
//! Roles, not axis numbers: a model may be sequence-first, fold heads into the batch, or store
//! keys transposed.

mod back;
mod heads;
pub(crate) mod pads;

pub(crate) use back::back;

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, NodeId};

/// The axes of the sequence and of the features of one head in a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    /// The axis of tokens.
    pub sequence: usize,
    /// The axis of the features; `None` where it is merged with another or sliced.
    pub feature: Option<usize>,
    /// Features of each head, where several heads follow each other on the feature axis.
    pub group: Option<usize>,
    /// The index in the head of the first feature.
    pub offset: i64,
}

impl Lane {
    /// A sequence whose features are not known.
    pub(crate) fn of_sequence(sequence: usize) -> Self {
        Self {
            sequence,
            feature: None,
            group: None,
            offset: 0,
        }
    }

    /// Features of one head in a value of these dimensions.
    pub(crate) fn width(&self, dims: &[usize]) -> Option<usize> {
        let all = *dims.get(self.feature?)?;
        Some(self.group.unwrap_or(all))
    }
}

/// Where a `Slice` of step 1 starts on `axis`; `None` for other steps.
pub(crate) fn slice_start(
    graph: &Graph,
    trace: &Trace,
    id: NodeId,
    axis: usize,
    from: &[usize],
) -> Option<i64> {
    let node = graph.node(id);
    let list = |slot: usize, name: &str| -> Option<Vec<i64>> {
        match node.input(slot) {
            Some(v) => Some(trace.get(v).to_i64()?.iter().copied().collect()),
            None => node.ints(name).ok()?.map(<[i64]>::to_vec),
        }
    };
    let starts = list(1, "starts")?;
    let all: Vec<i64> = (0..i64::try_from(starts.len()).ok()?).collect();
    let axes = list(3, "axes").unwrap_or(all);
    let steps = list(4, "steps").unwrap_or_else(|| vec![1; starts.len()]);
    for (i, a) in axes.iter().enumerate() {
        if wrap(*a, from.len())? != axis {
            continue;
        }
        if *steps.get(i)? != 1 {
            return None;
        }
        let len = i64::try_from(from[axis]).ok()?;
        let start = *starts.get(i)?;
        return Some(if start < 0 {
            (start + len).max(0)
        } else {
            start.min(len)
        });
    }
    Some(0)
}

/// A negative axis counts from the end.
pub(crate) fn wrap(axis: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank).ok()?;
    let axis = if axis < 0 { axis + rank } else { axis };
    (0..rank).contains(&axis).then_some(axis as usize)
}
