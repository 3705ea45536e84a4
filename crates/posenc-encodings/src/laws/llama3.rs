//! Llama 3.1: pairs by wavelength `λ = 2π/f`, against the original length L0.
//!
//! `λ < L0/high_freq_factor` stays, `λ > L0/low_freq_factor` is divided by s,
//! and between them `(1 - t)·f/s + t·f` with
//! `t = (L0/λ - low_freq_factor)/(high_freq_factor - low_freq_factor)`.
//!
//! Source: Dubey et al., arXiv:2407.21783, section 3.4.2, and Meta's
//! `apply_scaling`; Hugging Face `_compute_llama3_parameters`.

use std::f64::consts::PI;

use super::{Rope, ScalingError, error, plain, torch};

/// Parameters of the Llama 3.1 scaling.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Llama3 {
    /// Divisor s of the slow pairs, at least 1; 8 in Llama 3.1.
    pub factor: f64,
    /// Turns within L0 below which a pair is divided by s; 1 in Llama 3.1.
    pub low_freq_factor: f64,
    /// Turns within L0 above which a pair stays; 4 in Llama 3.1.
    pub high_freq_factor: f64,
    /// Context length L0 that the model was trained on; 8192 in Llama 3.1.
    pub original_length: usize,
}

impl Llama3 {
    /// Checked parameters.
    ///
    /// # Errors
    ///
    /// A factor below 1 or not finite; frequency factors that are not finite,
    /// not above 0 or in the wrong order; an original length of 0.
    pub fn new(
        factor: f64,
        low_freq_factor: f64,
        high_freq_factor: f64,
        original_length: usize,
    ) -> Result<Self, ScalingError> {
        let llama3 = Self {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_length,
        };
        llama3.check()?;
        Ok(llama3)
    }

    pub(super) fn check(&self) -> Result<(), ScalingError> {
        error::factor("factor", self.factor)?;
        error::positive("low_freq_factor", self.low_freq_factor)?;
        error::positive("high_freq_factor", self.high_freq_factor)?;
        error::length("original length", 1, self.original_length)?;
        let (low, high) = (self.low_freq_factor, self.high_freq_factor);
        if high > low {
            Ok(())
        } else {
            let (above, below) = ("high_freq_factor", "low_freq_factor");
            Err(ScalingError::Order {
                above,
                below,
                high,
                low,
            })
        }
    }

    pub(super) fn inv_freq(&self, rope: &Rope) -> Vec<f64> {
        let length = self.original_length as f64;
        let (low, high) = (self.low_freq_factor, self.high_freq_factor);
        let plain = plain::inv_freq(rope.theta, rope.rotary_dim);
        let scaled = plain.into_iter().map(|f| {
            let wavelength = 2.0 * PI / f;
            if wavelength < length / high {
                f
            } else if wavelength > length / low {
                f / self.factor
            } else {
                let t = (length / wavelength - low) / (high - low);
                f * ((1.0 - t) / self.factor + t)
            }
        });
        scaled.collect()
    }

    pub(super) fn inv_freq_hf(&self, rope: &Rope) -> Vec<f32> {
        let plain = plain::inv_freq_hf(rope.theta as f32, rope.rotary_dim);
        if self.factor == 1.0 {
            return plain;
        }
        let length = self.original_length as f64;
        let (low, high) = (self.low_freq_factor, self.high_freq_factor);
        let (longest, shortest) = ((length / low) as f32, (length / high) as f32);
        let factor = self.factor as f32;
        let scaled = plain.into_iter().map(|f| {
            let wavelength = torch::div_of_scalar((2.0 * PI) as f32, f);
            if wavelength < shortest {
                f
            } else if wavelength > longest {
                f / factor
            } else {
                let turns = torch::div_of_scalar(length as f32, wavelength);
                let t = (turns - low as f32) / (high - low) as f32;
                (1.0 - t) * f / factor + t * f
            }
        });
        scaled.collect()
    }
}
