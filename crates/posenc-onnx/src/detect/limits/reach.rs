//! The rows of a constant that a run reads.

use ndarray::{ArrayD, Axis};
use posenc_ir::eval::Trace;
use posenc_ir::{Node, ValueId};

use crate::graph::lane::wrap;

/// The rows that the trial run reads.
#[derive(Clone, Copy)]
pub(super) struct Reach {
    pub(super) least: i64,
    pub(super) most: i64,
    /// Tokens along the longest axis of the index.
    pub(super) tokens: usize,
    /// Whether each token reads the row after that of the token before.
    pub(super) steps: bool,
}

impl Reach {
    /// Of an index in the trial run, which may contain the rows of each of `copies` sequences one after
    /// another.
    pub(super) fn of(trace: &Trace, node: &Node, index: ValueId, copies: usize) -> Option<Self> {
        let numbers = trace.get(index).to_i64()?;
        let steps = |line: &[i64]| line.windows(2).all(|w| w[0].checked_add(1) == Some(w[1]));
        if node.is("GatherElements") {
            // An index for each element: one lane of them gives the rows.
            let axis = wrap(node.int("axis").ok()?.unwrap_or(0), numbers.ndim())?;
            let line: Vec<i64> = numbers.lanes(Axis(axis)).into_iter().next()?.to_vec();
            return Some(Self {
                least: *numbers.iter().min()?,
                most: *numbers.iter().max()?,
                tokens: line.len(),
                steps: steps(&line),
            })
            .filter(|at| at.tokens > 1);
        }
        // An index of pairs and the like has a last axis that is no sequence.
        let pairs = usize::from(node.op() == "GatherND");
        Self::of_rows(&numbers, numbers.ndim().checked_sub(pairs)?, copies)
    }

    /// Of the rows that are read, where the first `rank` axes may be of tokens.
    pub(super) fn of_rows(numbers: &ArrayD<i64>, rank: usize, copies: usize) -> Option<Self> {
        let rows: Vec<i64> = numbers.iter().copied().collect();
        let steps = |line: &[i64]| line.windows(2).all(|w| w[0].checked_add(1) == Some(w[1]));
        let longest = numbers.shape()[..rank].iter().copied().max()?;
        let one = longest / copies.max(1);
        let again = one > 1 && longest == one * copies && longest == rows.len();
        let tokens = if again && (one..longest).all(|i| rows[i] == rows[i % one]) {
            one
        } else {
            longest
        };
        let line = rows.get(..tokens)?;
        Some(Self {
            least: *rows.iter().min()?,
            most: *rows.iter().max()?,
            tokens,
            steps: rank < 3 && steps(line),
        })
        .filter(|_| tokens > 1)
    }

    /// The length at which the last row is read, each further token reading one more.
    pub(super) fn length_for(self, rows: usize, past: usize) -> Option<usize> {
        let last = i64::try_from(rows).ok()? - 1;
        let spare = last.checked_sub(self.most)?;
        let spare = usize::try_from(spare).ok()?;
        // One row for each new token: earlier ones are in the cache.
        let before = if self.steps && self.least >= i64::try_from(past).ok()? {
            past
        } else {
            0
        };
        (before + self.tokens).checked_add(spare)
    }
}
