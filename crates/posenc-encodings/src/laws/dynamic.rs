//! Dynamic NTK scaling: plain RoPE of a base that grows with the length,
//! `θ' = θ · (s·L'/L_max - (s - 1))^(d/(d-2))` with `L' = max(L, L_max)`.
//!
//! `L_max` is the model's `max_position_embeddings`. Hugging Face keeps the
//! largest length seen so far and drops it at an input shorter than `L_max`;
//! here the base depends on the length of the run alone, as in the first call.
//!
//! Source: emozilla, "Dynamically Scaled RoPE" (2023); Peng et al.,
//! arXiv:2309.00071, section 3.3; Hugging Face `_compute_dynamic_ntk_parameters`.

mod identify;

use serde::{Deserialize, Serialize};

use super::error::{self, LawError, ScalingError};
use super::facts::Facts;
use super::given::Chosen;
use super::law::Law;
use super::rope::Rope;
use super::shared::{FACTOR, ORIGINAL_LENGTH};
use super::{plain, torch};
use crate::hf::{HfConfigError, HfType, Reader, Writer};

pub use identify::identify_growth;

const FACTS: Facts = Facts {
    word: "dynamic",
    about: "RoPE of a base that grows with the length",
    source: "emozilla 2023",
    params: &[FACTOR, ORIGINAL_LENGTH],
    factor: Some(4.0),
    hf_types: &[HfType::word("dynamic")],
    hf_keys: &["factor", "original_max_position_embeddings"],
    hf_zeros: &["alpha"],
    reads_as_plain: true,
    ..Facts::NONE
};

/// Parameters of dynamic NTK scaling.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Dynamic {
    /// Strength s of the growth, at least 1.
    pub factor: f64,
    /// Length `L_max` up to which nothing changes.
    #[serde(rename = "original_length")]
    pub max_position: usize,
}

impl Dynamic {
    /// Checked parameters.
    ///
    /// # Errors
    ///
    /// A factor below 1 or not finite; a length of 0.
    pub fn new(factor: f64, max_position: usize) -> Result<Self, ScalingError> {
        error::factor(FACTOR.name, factor)?;
        error::length("max_position_embeddings", 1, max_position)?;
        Ok(Self {
            factor,
            max_position,
        })
    }

    /// Exponent `d / (d - 2)` of the growth.
    pub fn exponent(&self, rope: &Rope) -> f64 {
        plain::base_exponent(rope.rotary_dim)
    }

    /// Growth `s·L'/L_max - (s - 1)` at that length, 1 up to `L_max`.
    pub fn growth(&self, length: usize) -> f64 {
        if length <= self.max_position {
            return 1.0;
        }
        self.factor * length as f64 / self.max_position as f64 - (self.factor - 1.0)
    }

    /// The base θ' at that length.
    pub fn base(&self, rope: &Rope, length: usize) -> f64 {
        if length <= self.max_position {
            return rope.theta;
        }
        plain::grown_base(rope, self.growth(length))
    }
}

impl Law for Dynamic {
    fn facts() -> &'static Facts {
        &FACTS
    }

    fn from_given(given: &mut Chosen<'_>) -> Result<Self, LawError> {
        let max_position = given.original_length()?;
        let factor = given.factor();
        Ok(Self {
            factor,
            max_position,
        })
    }

    /// Scales from `max_position_embeddings`, whatever the original length.
    fn from_hf(config: &mut Reader<'_>) -> Result<Self, HfConfigError> {
        let factor = config.factor()?;
        Ok(Self::new(factor, config.max_as_original_length()?)?)
    }

    fn to_hf(&self, _: &Rope, config: &mut Writer) {
        config.rope_type = Some(FACTS.word);
        config.set("factor", self.factor);
        config.set_max_length(self.max_position);
    }

    fn check(&self, rope: &Rope) -> Result<(), ScalingError> {
        Self::new(self.factor, self.max_position)?;
        plain::needs_two_pairs(FACTS.word, rope)
    }

    fn inv_freq(&self, rope: &Rope, length: usize) -> Vec<f64> {
        plain::inv_freq(self.base(rope, length), rope.rotary_dim)
    }

    /// Beyond `L_max` the length is a tensor, so the base is computed in f32.
    fn inv_freq_hf(&self, rope: &Rope, length: usize) -> Vec<f32> {
        if length <= self.max_position {
            return plain::inv_freq_hf(rope.theta as f32, rope.rotary_dim);
        }
        let stretched = self.factor as f32 * length as f32 / self.max_position as f32;
        let growth = stretched - (self.factor - 1.0) as f32;
        let grown = f64::from(growth).powf(self.exponent(rope)) as f32;
        let base = rope.theta as f32 * grown;
        torch::exponents(rope.rotary_dim)
            .map(|x| 1.0 / torch::pow(base, x))
            .collect()
    }

    fn depends_on_length(&self) -> bool {
        true
    }

    /// The base grows with a factor of 1 too.
    fn is_identity(&self, _: &Rope) -> bool {
        false
    }

    fn original_length(&self) -> Option<usize> {
        Some(self.max_position)
    }

    fn extension(&self) -> f64 {
        self.factor
    }
}
