//! NTK-aware scaling with a fixed base: plain RoPE of `θ' = θ · s^(d/(d-2))`.
//!
//! The slowest pair is interpolated by s, the fastest stays. The numbers alone
//! are those of a model that was trained with θ'.
//!
//! Source: bloc97, "NTK-Aware Scaled RoPE" (2023); Peng et al., arXiv:2309.00071,
//! section 3.1. Hugging Face has no static form; vLLM calls it `ntk`.

use serde::{Deserialize, Serialize};

use super::error::{self, LawError, ScalingError};
use super::facts::Facts;
use super::given::Chosen;
use super::law::Law;
use super::plain;
use super::rope::Rope;
use super::shared::{FACTOR, ORIGINAL_LENGTH};
use crate::hf::{HfConfigError, HfType, Reader, Writer};

const FACTS: Facts = Facts {
    word: "ntk",
    about: "RoPE of a larger base",
    source: "bloc97 2023",
    params: &[FACTOR, ORIGINAL_LENGTH],
    factor: Some(4.0),
    hf_types: &[HfType::word("ntk")],
    hf_keys: &["factor"],
    reads_as_plain: true,
    ..Facts::NONE
};

/// Parameters of static NTK scaling.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ntk {
    /// Context extension s, at least 1.
    pub factor: f64,
}

impl Ntk {
    /// Checked parameters.
    ///
    /// # Errors
    ///
    /// A factor below 1 or not finite.
    pub fn new(factor: f64) -> Result<Self, ScalingError> {
        error::factor(FACTOR.name, factor)?;
        Ok(Self { factor })
    }

    /// The enlarged base θ'.
    pub fn base(&self, rope: &Rope) -> f64 {
        plain::grown_base(rope, self.factor)
    }
}

impl Law for Ntk {
    fn facts() -> &'static Facts {
        &FACTS
    }

    fn from_given(given: &mut Chosen<'_>) -> Result<Self, LawError> {
        let factor = given.factor();
        Ok(Self { factor })
    }

    fn from_hf(config: &mut Reader<'_>) -> Result<Self, HfConfigError> {
        Ok(Self::new(config.factor()?)?)
    }

    fn to_hf(&self, rope: &Rope, config: &mut Writer) {
        config.theta = self.base(rope);
    }

    fn check(&self, rope: &Rope) -> Result<(), ScalingError> {
        error::factor(FACTOR.name, self.factor)?;
        plain::needs_two_pairs(FACTS.word, rope)
    }

    fn inv_freq(&self, rope: &Rope, _: usize) -> Vec<f64> {
        plain::inv_freq(self.base(rope), rope.rotary_dim)
    }

    fn inv_freq_hf(&self, rope: &Rope, _: usize) -> Vec<f32> {
        plain::inv_freq_hf(self.base(rope) as f32, rope.rotary_dim)
    }

    fn is_identity(&self, _: &Rope) -> bool {
        self.factor == 1.0
    }

    fn extension(&self) -> f64 {
        self.factor
    }
}
