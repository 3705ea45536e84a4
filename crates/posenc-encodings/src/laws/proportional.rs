//! Proportional RoPE (p-RoPE): the frequencies of the whole head, of which
//! only the fastest share p turns.
//!
//! `k = ⌊p·head_dim/2⌋` pairs have `θ^(-2i/head_dim) / s`, the other
//! `head_dim/2 - k` have 0 (cos 1, sin 0). Pairs are `(x_i, x_(i + head_dim/2))`
//! over the whole head: another function than a partial rotary embedding of
//! the same share, whose pairs lie within the first `p·head_dim` elements.
//!
//! Source: Barbero et al., arXiv:2410.06205, section 6; Hugging Face 5
//! `proportional` (Gemma 4).

use super::{Rope, ScalingError, error, plain};

/// Parameters of proportional RoPE.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Proportional {
    /// Share p of the pairs that turn, from 0 to 1.
    pub share: f64,
    /// Divisor s of every frequency, at least 1.
    pub factor: f64,
}

impl Proportional {
    /// Checked parameters.
    ///
    /// # Errors
    ///
    /// A share outside 0 to 1; a factor below 1 or not finite.
    pub fn new(share: f64, factor: f64) -> Result<Self, ScalingError> {
        let proportional = Self { share, factor };
        proportional.check()?;
        Ok(proportional)
    }

    pub(super) fn check(&self) -> Result<(), ScalingError> {
        error::factor("factor", self.factor)?;
        if (0.0..=1.0).contains(&self.share) {
            Ok(())
        } else {
            Err(ScalingError::Share {
                name: "partial_rotary_factor",
                value: self.share,
            })
        }
    }

    /// Number k of pairs with a frequency above zero.
    pub fn turning_pairs(&self, rope: &Rope) -> usize {
        let k = (self.share * rope.head_dim as f64 / 2.0).floor();
        // A float that is negative or NaN becomes 0 here.
        (k as usize).min(rope.head_dim / 2)
    }

    pub(super) fn inv_freq(&self, rope: &Rope) -> Vec<f64> {
        let turning = self.turning_pairs(rope);
        let whole = plain::inv_freq(rope.theta, rope.head_dim);
        let scaled = whole.into_iter().enumerate();
        scaled
            .map(|(i, f)| if i < turning { f / self.factor } else { 0.0 })
            .collect()
    }

    pub(super) fn inv_freq_hf(&self, rope: &Rope) -> Vec<f32> {
        let turning = self.turning_pairs(rope);
        let whole = plain::inv_freq_hf(rope.theta as f32, rope.head_dim);
        let scaled = whole.into_iter().enumerate();
        scaled
            .map(|(i, f)| {
                if i < turning {
                    f / self.factor as f32
                } else {
                    0.0
                }
            })
            .collect()
    }
}
