//! LongRoPE (`su` in older configs): one searched divisor per pair,
//! `f_i / e_i`, with the list `long_factor` for lengths above the original
//! length L0 and `short_factor` up to it.
//!
//! cos and sin are multiplied by `m = sqrt(1 + ln s / ln L0)` at every length,
//! unless given; runtimes with `short_mscale` and `long_mscale` switch m too.
//!
//! Source: Ding et al., arXiv:2402.13753, section 3.3 and the released code;
//! Hugging Face `_compute_longrope_parameters` and `longrope_frequency_update`.

use super::{Rope, ScalingError, error, plain};

/// Where the factor on cos and sin comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LongRopeAttention {
    /// Given.
    Explicit(f64),
    /// `sqrt(1 + ln s / ln L0)` of this extension s; 1 for `s ≤ 1`. Hugging
    /// Face takes s from the ratio of the two lengths where the config holds
    /// the original one beside `max_position_embeddings`, else from `factor`.
    Extension(f64),
    /// One factor for each list.
    Switched {
        /// Up to the original length.
        short: f64,
        /// Above it.
        long: f64,
    },
}

/// Parameters of LongRoPE.
#[derive(Debug, Clone, PartialEq)]
pub struct LongRope {
    /// Divisors up to the original length, `[pairs]`.
    pub short_factor: Vec<f64>,
    /// Divisors above the original length, `[pairs]`.
    pub long_factor: Vec<f64>,
    /// Length L0 above which `long_factor` holds.
    pub original_length: usize,
    /// Factor on cos and sin.
    pub attention: LongRopeAttention,
}

impl LongRope {
    pub(super) fn check(&self, rope: &Rope) -> Result<(), ScalingError> {
        error::length("original length", 2, self.original_length)?;
        for (name, list) in [
            ("short_factor", &self.short_factor),
            ("long_factor", &self.long_factor),
        ] {
            let (want, got) = (rope.pairs(), list.len());
            if want != got {
                return Err(ScalingError::ListLength { name, want, got });
            }
            list.iter().try_for_each(|&e| error::positive(name, e))?;
        }
        match self.attention {
            LongRopeAttention::Explicit(m) => error::positive("attention_factor", m),
            LongRopeAttention::Extension(s) => error::positive("factor", s),
            LongRopeAttention::Switched { short, long } => {
                error::positive("short_mscale", short)?;
                error::positive("long_mscale", long)
            }
        }
    }

    /// Whether the long list holds at that length.
    pub fn is_long(&self, length: usize) -> bool {
        length > self.original_length
    }

    /// Factor m on cos and sin at that length.
    pub fn attention_factor(&self, length: usize) -> f64 {
        match self.attention {
            LongRopeAttention::Explicit(m) => m,
            LongRopeAttention::Extension(s) if s <= 1.0 => 1.0,
            LongRopeAttention::Extension(s) => {
                (1.0 + s.ln() / (self.original_length as f64).ln()).sqrt()
            }
            LongRopeAttention::Switched { long, .. } if self.is_long(length) => long,
            LongRopeAttention::Switched { short, .. } => short,
        }
    }

    pub(super) fn depends_on_length(&self) -> bool {
        let switched = match self.attention {
            LongRopeAttention::Switched { short, long } => short != long,
            _ => false,
        };
        switched || self.short_factor != self.long_factor
    }

    pub(super) fn is_identity(&self) -> bool {
        let ones = |list: &[f64]| list.iter().all(|&e| e == 1.0);
        let lengths = [self.original_length, self.original_length.saturating_add(1)];
        ones(&self.short_factor)
            && ones(&self.long_factor)
            && lengths
                .iter()
                .all(|&length| self.attention_factor(length) == 1.0)
    }

    fn divisors(&self, length: usize) -> impl Iterator<Item = f64> {
        let list = if self.is_long(length) {
            &self.long_factor
        } else {
            &self.short_factor
        };
        list.iter().copied().chain(std::iter::repeat(f64::NAN))
    }

    pub(super) fn inv_freq(&self, rope: &Rope, length: usize) -> Vec<f64> {
        let plain = plain::inv_freq(rope.theta, rope.rotary_dim);
        plain
            .into_iter()
            .zip(self.divisors(length))
            .map(|(f, e)| f / e)
            .collect()
    }

    pub(super) fn inv_freq_hf(&self, rope: &Rope, length: usize) -> Vec<f32> {
        let powers = plain::powers_hf(rope.theta as f32, rope.rotary_dim);
        powers
            .into_iter()
            .zip(self.divisors(length))
            .map(|(p, e)| 1.0 / (e as f32 * p))
            .collect()
    }
}
