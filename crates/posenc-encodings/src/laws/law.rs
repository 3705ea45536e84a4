//! What every law of RoPE implements.

use std::fmt::Debug;

use super::error::{LawError, ScalingError};
use super::facts::Facts;
use super::given::Chosen;
use super::identify::evidence::Samples;
use super::identify::found::Fit;
use super::identify::geometric::Candidates;
use super::identify::search::Search;
use super::rope::Rope;
use crate::hf::{HfConfigError, Reader, Writer};

/// A law that changes the frequencies of a [`Rope`]. It is also read and written by serde: that is
/// how records of rewritten models keep it.
///
/// No method panics; for parameters that [`Law::check`] refuses, the numbers are whatever the
/// formula gives, NaN included.
pub(crate) trait Law: Debug {
    /// What is known of it before its parameters are.
    fn facts() -> &'static Facts
    where
        Self: Sized;

    /// The law with the values of a request.
    ///
    /// # Errors
    /// A value that is needed and not given.
    fn from_given(given: &mut Chosen<'_>) -> Result<Self, LawError>
    where
        Self: Sized;

    /// The law with the values of a Hugging Face config.
    ///
    /// # Errors
    /// A value that is missing, of another type or out of range.
    fn from_hf(config: &mut Reader<'_>) -> Result<Self, HfConfigError>
    where
        Self: Sized;

    /// Says the law in the keys of a Hugging Face config, as transformers reads them. A law that
    /// transformers does not have is the plain RoPE that it equals.
    fn to_hf(&self, rope: &Rope, config: &mut Writer);

    /// Whether the parameters are in range and fit `rope`.
    ///
    /// # Errors
    /// The first that does not.
    fn check(&self, rope: &Rope) -> Result<(), ScalingError>;

    /// Radians per position of each pair, in f64, straight from the formula; `length` is the
    /// largest position plus one.
    fn inv_freq(&self, rope: &Rope, length: usize) -> Vec<f64>;

    /// The same in the order of operations of transformers 4.57, in f32.
    fn inv_freq_hf(&self, rope: &Rope, length: usize) -> Vec<f32>;

    /// Factor m on cos and on sin at that length.
    fn attention_factor(&self, _length: usize) -> f64 {
        1.0
    }

    /// Factor on the softmax scale of the whole score, rotated or not, in latent attention.
    fn softmax_factor(&self) -> f64 {
        1.0
    }

    /// Whether the frequencies or the factor differ between two lengths.
    fn depends_on_length(&self) -> bool {
        false
    }

    /// Whether the result is plain RoPE of the same θ, bit for bit, at every length.
    fn is_identity(&self, rope: &Rope) -> bool;

    /// Context length before the scaling, where a parameter names it.
    fn original_length(&self) -> Option<usize> {
        None
    }

    /// How many times the original length it reaches; 1 where it does not say.
    fn extension(&self) -> f64;

    /// The readings of some frequencies as this law.
    fn fits(_search: Search, _samples: &Samples, _candidates: &Candidates) -> Vec<Fit>
    where
        Self: Sized,
    {
        vec![]
    }

    /// The base θ that frequencies show although their law remains unknown.
    fn theta(_samples: &Samples) -> Option<f64>
    where
        Self: Sized,
    {
        None
    }
}
