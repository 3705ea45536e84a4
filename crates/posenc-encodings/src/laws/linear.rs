//! Position interpolation: `f_i / s`, the same as positions divided by `s`.
//!
//! Source: Chen et al., arXiv:2306.15595, section 2.3; Hugging Face
//! `_compute_linear_scaling_rope_parameters`.

use super::{Rope, ScalingError, error, plain};

/// Parameters of position interpolation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Linear {
    /// Divisor s of every frequency, at least 1.
    pub factor: f64,
}

impl Linear {
    /// Checked parameters.
    ///
    /// # Errors
    ///
    /// A factor below 1 or not finite.
    pub fn new(factor: f64) -> Result<Self, ScalingError> {
        let linear = Self { factor };
        linear.check()?;
        Ok(linear)
    }

    pub(super) fn check(&self) -> Result<(), ScalingError> {
        error::factor("factor", self.factor)
    }

    pub(super) fn inv_freq(&self, rope: &Rope) -> Vec<f64> {
        let plain = plain::inv_freq(rope.theta, rope.rotary_dim);
        plain.into_iter().map(|f| f / self.factor).collect()
    }

    pub(super) fn inv_freq_hf(&self, rope: &Rope) -> Vec<f32> {
        let plain = plain::inv_freq_hf(rope.theta as f32, rope.rotary_dim);
        plain.into_iter().map(|f| f / self.factor as f32).collect()
    }
}
