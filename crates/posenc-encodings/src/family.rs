//! What a family of encodings declares about itself.
//!
//! The file of a family has one [`Family`], which says everything about it as data: its word, its
//! parameters, its learned tensors, its words for people, and how position enters. From these follow
//! the flags of the command line, the names in files of learned values, the check that a given
//! value has an effect, and the tables of the documentation. `families.rs` lists the families.

use crate::bias::{BiasFamily, ReadFrom, ScoreBias};
use crate::describe::Description;
use crate::encoding::Learned;
use crate::input_term::{InputFamily, InputTerm};
use crate::param::Param;
use crate::rotation::{Rotation, RotationFamily};
use crate::score_term::{ScoreTerm, TermFamily};

/// A family of encodings.
#[derive(Debug)]
pub struct Family {
    /// Its name on the command line and in JSON.
    pub word: &'static str,
    /// What it is, as a phrase without a full stop.
    pub about: &'static str,
    /// What a rewrite adds to a graph, as a phrase for the documentation; empty for a family that
    /// is found and not written.
    pub adds: &'static str,
    /// The parameters that a request can give.
    pub params: &'static [Param],
    /// Values of a request that several parts share and this family uses too, with the value where
    /// none is given: `theta`, `layout`, `rotary-dim`, `max-length`.
    pub common: &'static [(&'static str, &'static str)],
    /// The learned tensors that a file can give.
    pub tensors: &'static [Learned],
    /// What its learned numbers start from, for the documentation: without and with a seed; empty
    /// where a seed has no effect.
    pub starts: [&'static str; 2],
    /// Reported parameters that are learned: layers with other values belong to one entry.
    pub learned: &'static [&'static str],
    /// Says reported parameters in words.
    pub describe: fn(&mut Description<'_>),
    /// How position enters.
    pub entry: Entry,
}

impl Family {
    /// Whether a request can give a parameter of this name.
    pub fn takes(&self, name: &str) -> bool {
        let own = self.params.iter().any(|param| param.name == name);
        own || self.common.iter().any(|(common, _)| *common == name)
    }

    /// Whether it follows position ids.
    pub fn follows_positions(&self) -> bool {
        match &self.entry {
            Entry::InputTerm(input) => input.of_positions,
            Entry::Rotation(_) => true,
            Entry::ScoreBias(_) | Entry::ScoreTerm(_) | Entry::FoundOnly => false,
        }
    }
}

/// How position enters.
#[derive(Debug)]
pub enum Entry {
    /// Added to the embeddings, before all layers of a stack.
    InputTerm(InputFamily),
    /// Queries and keys are rotated.
    Rotation(RotationFamily),
    /// A number for each head and pair of tokens is added to the scores.
    ScoreBias(BiasFamily),
    /// Vectors meet queries, keys or weights of attention.
    ScoreTerm(TermFamily),
    /// Found, not written.
    FoundOnly,
}

impl Entry {
    /// A family of biases of this type.
    pub const fn score_bias<T: ScoreBias>(read_from: ReadFrom) -> Self {
        Self::ScoreBias(BiasFamily::of::<T>(read_from))
    }

    /// A family of terms on the embeddings of this type: functions of position ids, or not.
    pub const fn input_term<T: InputTerm>(of_positions: bool) -> Self {
        Self::InputTerm(InputFamily::of::<T>(of_positions))
    }

    /// A family of terms of vectors of this type.
    pub const fn score_term<T: ScoreTerm>() -> Self {
        Self::ScoreTerm(TermFamily::of::<T>())
    }

    /// A family of rotations of this type.
    pub const fn rotation<T: Rotation>() -> Self {
        Self::Rotation(RotationFamily::of::<T>())
    }
}
