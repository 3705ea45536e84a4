//! An input with its role, and the lengths of a trial run.

use posenc_ir::{DType, Dim, ValueId};

/// What an input is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Role {
    /// Token ids.
    Tokens,
    /// Position ids.
    Positions,
    /// Attention mask: 1 or true where a token counts; additive when of a float type.
    Padding,
    /// How many tokens of each sequence count, from the first on.
    Counts,
    /// Segment ids.
    TokenTypes,
    /// Keys or values of earlier steps.
    Past,
    /// Whether to use the cache, in merged decoders.
    CacheFlag,
    /// Numbers by position, or frequencies, which others store: an exporter may have taken a constant of
    /// its framework for an input.
    Table,
    /// Anything else: embeddings, pixels, audio.
    Content,
}

/// An input of the main graph that a caller feeds.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    /// The input.
    pub value: ValueId,
    /// What it is for.
    pub role: Role,
    /// Element type.
    pub dtype: DType,
    /// Declared dimensions.
    pub dims: Vec<Dim>,
    /// Tokens are along the first axis, and sequences, if there are several, along the second.
    pub turned: bool,
}

impl Port {
    /// The axis of tokens of ids, types and positions.
    pub(crate) fn token_axis(&self) -> usize {
        match self.turned {
            true => 0,
            false => self.dims.len().saturating_sub(1),
        }
    }

    /// The axis of sequences; `None` where there is one sequence alone.
    pub(crate) fn batch_axis(&self) -> Option<usize> {
        let has_features = self.role == Role::Content;
        let axis = usize::from(self.turned);
        (self.dims.len() > axis + usize::from(has_features && self.turned)).then_some(axis)
    }
}

/// The lengths of a trial run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lengths {
    /// Sequences.
    pub batch: usize,
    /// New tokens of each.
    pub sequence: usize,
    /// Tokens that are in the cache already; 0 for models without one.
    pub past: usize,
}

/// How to read open dimensions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// The inputs of two stacks are of one length.
    pub(super) tied: bool,
    /// A mask that is declared as long as the new tokens is no longer, whatever is cached.
    pub(super) short_mask: bool,
    /// A batch is of so many sequences, as shapes in the graph may have it.
    pub(super) batch: Option<usize>,
}
