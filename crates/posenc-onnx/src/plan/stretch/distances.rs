//! Tables by distance that get other rows on either side of that of distance 0.

use posenc_encodings::families::shaw::Shaw;
use posenc_encodings::families::transformer_xl::Code;
use posenc_encodings::resize::Weights;
use posenc_encodings::resize::distances::{Sides, Widening};
use posenc_ir::{NodeId, Use, ValueId};

use crate::detect::finding::{Encoding, Finding};

/// The most tokens of which rows are compared at every distance: the numbers of all pairs are at hand then.
pub(crate) const MOST_TOKENS: usize = 5792;

/// The tables of an encoding by distance, which all get other rows.
#[derive(Clone, Debug)]
pub(crate) struct ByDistance {
    /// Its finding, by the place in `Found::findings`.
    pub(crate) finding: usize,
    /// Every place where rows are picked.
    pub(crate) reads: Vec<Read>,
    /// The numbers by which the rows of distances are found, as they are afterwards.
    pub(crate) numbers: Vec<Number>,
    /// Values between the first of these numbers and the rows, which become others.
    pub(crate) followed: Vec<ValueId>,
    /// Where these, and what is before them, are read on the way to a row.
    pub(crate) index: Vec<Use>,
    /// What the rows are.
    pub(crate) rows: Rows,
    /// The longest sequence before; `None` where distances are clamped.
    pub(crate) old_length: Option<usize>,
    /// The longest sequence afterwards; `None` where distances are clamped.
    pub(crate) new_length: Option<usize>,
    /// The encoding afterwards.
    pub(crate) after: Encoding,
}

/// A node that picks rows of a table by distance.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    /// The node.
    pub(crate) node: NodeId,
    /// The table, as the node reads it.
    pub(crate) table: ValueId,
    /// The axis of its rows.
    pub(crate) axis: usize,
    /// Rows on either side now.
    pub(crate) old: Sides,
    /// Rows on either side afterwards.
    pub(crate) new: Sides,
}

/// A number in the graph that becomes another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number {
    /// Where it is read.
    pub(crate) at: Use,
    /// What it becomes.
    pub(crate) new: i64,
}

/// The rows of distances.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rows {
    /// Sums of the old ones.
    Widened(Widening),
    /// Sines and cosines; the rows that are there stay.
    Waves {
        /// Their code.
        code: Code,
        /// Whether rows count query − key upwards.
        counts_up: bool,
    },
}

impl Read {
    /// Tokens by which every row is read, before and afterwards; `lengths` are the longest sequences, `None`
    /// where distances are clamped: one more shows then what is beyond.
    pub(crate) fn tokens(&self, lengths: [Option<usize>; 2]) -> [usize; 2] {
        let farthest = |sides: Sides| sides.before.max(sides.after);
        let [old, new] = [self.old, self.new].map(|sides| farthest(sides).saturating_add(2));
        [lengths[0].unwrap_or(old), lengths[1].unwrap_or(new)]
    }

    /// The old rows of each new one.
    pub(crate) fn weights(&self, by: Widening) -> Vec<Weights> {
        by.weights(self.old, self.new)
    }
}

/// Whether a finding is of a table by distance that can get other rows: on a line of tokens, and its
/// distances end or are clamped.
pub(crate) fn is_by_distance(finding: &Finding) -> bool {
    match &finding.encoding {
        Encoding::Shaw(e) => e.window.is_none() && e.max_distance.is_some(),
        // Computed sinusoids end nowhere, and stored ones continue by their formula.
        Encoding::TransformerXl(_) => finding.max_length.is_some(),
        Encoding::ScoreBias(_, bias) => bias.widen(1, 1).is_some(),
        _ => false,
    }
}

/// The encoding with rows for other distances: those of each side of `old` are those of `new`.
pub(super) fn after(encoding: &Encoding, old: Sides, new: Sides) -> Option<Encoding> {
    match encoding {
        Encoding::Shaw(e) => {
            let behind = e.max_distance?;
            // Rows before that of distance 0 may be those of keys before the query or after it.
            let [behind, ahead] = match behind == old.before {
                true => [new.before, new.after],
                false => [new.after, new.before],
            };
            let is_uneven = e.ahead.is_some() && ahead != behind;
            Some(Encoding::Shaw(Shaw {
                max_distance: Some(behind),
                ahead: is_uneven.then_some(ahead),
                ..e.clone()
            }))
        }
        Encoding::ScoreBias(kind, bias) => Some(Encoding::ScoreBias(
            *kind,
            bias.widen(new.before, new.after)?,
        )),
        other => Some(other.clone()),
    }
}
