//! The rotary embedding that a law changes, and the frequencies that it computes with.

use super::error::{self, ScalingError};

/// A rotary embedding before any scaling.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rope {
    /// Base θ of the geometric frequencies, above 1 in every model seen.
    pub theta: f64,
    /// Width d of the rotated part of a head: twice the number of pairs.
    pub rotary_dim: usize,
    /// Width of the whole head; only proportional RoPE depends on it.
    pub head_dim: usize,
}

impl Rope {
    /// A rotary embedding, checked.
    ///
    /// # Errors
    ///
    /// θ that is not a finite number above 0; a rotary width that is 0, odd or
    /// wider than the head.
    pub fn new(theta: f64, rotary_dim: usize, head_dim: usize) -> Result<Self, ScalingError> {
        let rope = Self {
            theta,
            rotary_dim,
            head_dim,
        };
        rope.check()?;
        Ok(rope)
    }

    /// The checks of [`Rope::new`] on a value built by hand.
    ///
    /// # Errors
    ///
    /// As [`Rope::new`].
    pub fn check(&self) -> Result<(), ScalingError> {
        error::positive("theta", self.theta)?;
        let Self {
            rotary_dim,
            head_dim,
            ..
        } = *self;
        if rotary_dim == 0 || !rotary_dim.is_multiple_of(2) || rotary_dim > head_dim {
            return Err(ScalingError::RotaryDim {
                rotary_dim,
                head_dim,
            });
        }
        Ok(())
    }

    /// Number of rotated pairs, `rotary_dim / 2`.
    pub fn pairs(&self) -> usize {
        self.rotary_dim / 2
    }
}

/// What a rotary embedding computes with, in f64.
#[derive(Debug, Clone, PartialEq)]
pub struct Frequencies {
    /// Radians per position of each pair, `[pairs]`, pair 0 first.
    pub inv_freq: Vec<f64>,
    /// Factor m on cos and on sin, so m² on the rotated part of a score.
    pub attention_factor: f64,
}

/// [`Frequencies`] rounded where and as transformers 4.57 rounds them.
#[derive(Debug, Clone, PartialEq)]
pub struct FrequenciesF32 {
    /// Radians per position of each pair, `[pairs]`, pair 0 first.
    pub inv_freq: Vec<f32>,
    /// Factor m on cos and on sin; Hugging Face keeps it as a Python float.
    pub attention_factor: f64,
}
