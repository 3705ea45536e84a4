//! YaRN: fast pairs stay, slow pairs are interpolated, a linear ramp between.
//!
//! `f_i · (r_i/s + 1 - r_i)` with `r_i = clamp((i - low)/(high - low), 0, 1)`,
//! where `low` and `high` are the pairs that turn `beta_fast` and `beta_slow`
//! times within the original length L0:
//! `pair(n) = d · ln(L0/(2πn)) / (2 ln θ)`. They are rounded outward unless
//! told otherwise, then `low` is at least 0 and `high` at most `d - 1`.
//! cos and sin are multiplied by `m = 0.1 ln s + 1`, unless given.
//!
//! Source: Peng et al., arXiv:2309.00071, sections 3.2 and 3.4; Hugging Face
//! `_compute_yarn_parameters`, which rounds `low` and `high` where the paper
//! does not; DeepSeek-V3's `yarn_get_mscale` for [`Yarn::softmax_factor`].

use std::f64::consts::PI;

use super::{Rope, ScalingError, error, plain};

/// Whether the ends of the ramp are whole pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RampBounds {
    /// Rounded outward: `floor(low)`, `ceil(high)`; what configs mean by default.
    #[default]
    Truncated,
    /// As the formula gives them (`truncate: false`).
    Exact,
}

/// Parameters of YaRN.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Yarn {
    /// Context extension s, at least 1.
    pub factor: f64,
    /// Context length L0 that the model was trained on.
    pub original_length: usize,
    /// Turns within L0 above which a pair stays as it is; 32 by default.
    pub beta_fast: f64,
    /// Turns within L0 below which a pair is interpolated; 1 by default.
    pub beta_slow: f64,
    /// Rounding of the ends of the ramp.
    pub bounds: RampBounds,
    /// Factor on cos and sin; computed where absent.
    pub attention_factor: Option<f64>,
    /// Weight of `ln s` in the numerator of the computed factor. Counts only
    /// together with `mscale_all_dim`, and zero counts as absent.
    pub mscale: Option<f64>,
    /// Weight of `ln s` in its denominator, and in [`Yarn::softmax_factor`].
    pub mscale_all_dim: Option<f64>,
}

impl Yarn {
    /// YaRN with the betas of the paper, rounded bounds and the computed factor.
    ///
    /// # Errors
    ///
    /// A factor below 1 or not finite; an original length of 0.
    pub fn new(factor: f64, original_length: usize) -> Result<Self, ScalingError> {
        let yarn = Self {
            factor,
            original_length,
            beta_fast: 32.0,
            beta_slow: 1.0,
            bounds: RampBounds::Truncated,
            attention_factor: None,
            mscale: None,
            mscale_all_dim: None,
        };
        yarn.check_values()?;
        Ok(yarn)
    }

    fn check_values(&self) -> Result<(), ScalingError> {
        error::factor("factor", self.factor)?;
        error::length("original length", 1, self.original_length)?;
        error::positive("beta_fast", self.beta_fast)?;
        error::positive("beta_slow", self.beta_slow)?;
        if self.beta_fast < self.beta_slow {
            return Err(ScalingError::Order {
                above: "beta_fast",
                below: "beta_slow",
                high: self.beta_fast,
                low: self.beta_slow,
            });
        }
        if let Some(m) = self.attention_factor {
            error::positive("attention_factor", m)?;
        }
        for (name, weight) in [
            ("mscale", self.mscale),
            ("mscale_all_dim", self.mscale_all_dim),
        ] {
            if let Some(weight) = weight {
                error::not_negative(name, weight)?;
            }
        }
        Ok(())
    }

    pub(super) fn check(&self, rope: &Rope) -> Result<(), ScalingError> {
        self.check_values()?;
        // The ramp is measured in units of ln θ.
        if rope.theta > 1.0 {
            Ok(())
        } else {
            Err(ScalingError::Order {
                above: "theta",
                below: "1",
                high: rope.theta,
                low: 1.0,
            })
        }
    }

    /// Factor m on cos and sin.
    pub fn attention_factor(&self) -> f64 {
        if let Some(m) = self.attention_factor {
            return m;
        }
        match (self.mscale, self.mscale_all_dim) {
            (Some(over), Some(under)) if over != 0.0 && under != 0.0 => {
                magnitude(self.factor, over) / magnitude(self.factor, under)
            }
            _ => magnitude(self.factor, 1.0),
        }
    }

    /// DeepSeek's factor on the softmax scale of the whole score, rotated or
    /// not: `g(s, mscale_all_dim)²`, separate from [`Yarn::attention_factor`]
    /// and 1 without `mscale_all_dim`.
    pub fn softmax_factor(&self) -> f64 {
        match self.mscale_all_dim {
            Some(weight) if weight != 0.0 => magnitude(self.factor, weight).powi(2),
            _ => 1.0,
        }
    }

    /// The pairs `(low, high)` where the ramp starts and ends.
    pub fn ramp(&self, rope: &Rope) -> (f64, f64) {
        let d = rope.rotary_dim as f64;
        let length = self.original_length as f64;
        let pair = |turns: f64| d * (length / (turns * 2.0 * PI)).ln() / (2.0 * rope.theta.ln());
        let (low, high) = match self.bounds {
            RampBounds::Truncated => (pair(self.beta_fast).floor(), pair(self.beta_slow).ceil()),
            RampBounds::Exact => (pair(self.beta_fast), pair(self.beta_slow)),
        };
        (low.max(0.0), high.min(d - 1.0))
    }

    pub(super) fn inv_freq(&self, rope: &Rope) -> Vec<f64> {
        let (low, high) = self.ramp(rope);
        let plain = plain::inv_freq(rope.theta, rope.rotary_dim);
        let scaled = plain.into_iter().enumerate().map(|(i, f)| {
            let r = ramp_at(i, low, high);
            f * (r / self.factor + (1.0 - r))
        });
        scaled.collect()
    }

    pub(super) fn inv_freq_hf(&self, rope: &Rope) -> Vec<f32> {
        if self.factor == 1.0 {
            return plain::inv_freq_hf(rope.theta as f32, rope.rotary_dim);
        }
        let (low, mut high) = self.ramp(rope);
        if low == high {
            high += 0.001;
        }
        let (start, width) = (low as f32, (high - low) as f32);
        let powers = plain::powers_hf(rope.theta as f32, rope.rotary_dim);
        let scaled = powers.into_iter().enumerate().map(|(i, power)| {
            let r = ((i as f32 - start) / width).clamp(0.0, 1.0);
            let unchanged = 1.0 - r;
            let interpolated = 1.0 / (self.factor as f32 * power);
            interpolated * (1.0 - unchanged) + (1.0 / power) * unchanged
        });
        scaled.collect()
    }
}

/// `g(s, k) = 0.1·k·ln s + 1`, and 1 for `s ≤ 1`.
pub(super) fn magnitude(factor: f64, weight: f64) -> f64 {
    if factor <= 1.0 {
        1.0
    } else {
        0.1 * weight * factor.ln() + 1.0
    }
}

/// `clamp((i - low)/(high - low), 0, 1)`, a step where the ends meet.
pub(super) fn ramp_at(i: usize, low: f64, high: f64) -> f64 {
    let high = if low == high { high + 0.001 } else { high };
    ((i as f64 - low) / (high - low)).clamp(0.0, 1.0)
}
