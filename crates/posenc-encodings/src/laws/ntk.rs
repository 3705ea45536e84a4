//! NTK-aware scaling with a fixed base: plain RoPE of `θ' = θ · s^(d/(d-2))`.
//!
//! The slowest pair is interpolated by s, the fastest stays. From the numbers
//! alone it cannot be told from a model that was trained with θ'.
//!
//! Source: bloc97, "NTK-Aware Scaled RoPE" (2023); Peng et al., arXiv:2309.00071,
//! section 3.1. Hugging Face has no static form; vLLM calls it `ntk`.

use super::{Rope, ScalingError, error, plain};

/// Parameters of static NTK scaling.
#[derive(Debug, Clone, Copy, PartialEq)]
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
        error::factor("factor", factor)?;
        Ok(Self { factor })
    }

    pub(super) fn check(&self, rope: &Rope) -> Result<(), ScalingError> {
        error::factor("factor", self.factor)?;
        needs_two_pairs("ntk", rope)
    }

    /// The enlarged base θ'.
    pub fn base(&self, rope: &Rope) -> f64 {
        rope.theta * self.factor.powf(exponent(rope.rotary_dim))
    }

    pub(super) fn inv_freq(&self, rope: &Rope) -> Vec<f64> {
        plain::inv_freq(self.base(rope), rope.rotary_dim)
    }

    pub(super) fn inv_freq_hf(&self, rope: &Rope) -> Vec<f32> {
        plain::inv_freq_hf(self.base(rope) as f32, rope.rotary_dim)
    }
}

/// `d / (d - 2)`, which makes the last pair's frequency fall by exactly s.
pub(super) fn exponent(rotary_dim: usize) -> f64 {
    let d = rotary_dim as f64;
    d / (d - 2.0)
}

/// The exponent has no value at `d = 2`.
pub(super) fn needs_two_pairs(family: &'static str, rope: &Rope) -> Result<(), ScalingError> {
    let rotary_dim = rope.rotary_dim;
    if rotary_dim > 2 {
        Ok(())
    } else {
        Err(ScalingError::OnePair { family, rotary_dim })
    }
}
