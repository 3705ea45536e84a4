//! Frequencies of rotary position embeddings (RoPE) and the laws that stretch
//! them to longer contexts: numbers only, no graph.
//!
//! Pair `i` of a head turns by `pos · f_i`, and cos and sin carry the factor `m`
//! ([`Frequencies`]). Plain RoPE has `f_i = θ^(-2i/d)` and `m = 1`; every family
//! here changes `f`, `m` or both. Each family is one file: formula, source,
//! parameters, the f64 reference, and the same in the order of operations that
//! Hugging Face transformers 4.57 uses in f32.
//!
//! [`identify`] goes the other way, from numbers to a family.

mod dynamic;
mod error;
mod identify;
mod linear;
mod llama3;
mod longrope;
mod ntk;
mod plain;
mod proportional;
pub mod table;
mod torch;
mod yarn;

#[cfg(test)]
pub(crate) mod golden;
#[cfg(test)]
mod laws;

pub use dynamic::Dynamic;
pub use error::ScalingError;
pub use identify::{
    Identified, IdentifiedScaling, IdentifiedYarn, identify, identify_growth, identify_lists,
};
pub use linear::Linear;
pub use llama3::Llama3;
pub use longrope::{LongRope, LongRopeAttention};
pub use ntk::Ntk;
pub use proportional::Proportional;
pub use yarn::{RampBounds, Yarn};

/// The unscaled rotary embedding that a [`Scaling`] starts from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rope {
    /// Base θ of the geometric frequencies, above 1 in every model seen.
    pub theta: f64,
    /// Width d of the rotated part of a head: twice the number of pairs.
    pub rotary_dim: usize,
    /// Width of the whole head; only [`Proportional`] looks at it.
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

/// A law that changes the frequencies of a [`Rope`].
///
/// The methods never panic; on parameters that [`Scaling::check`] refuses, the
/// numbers are whatever the formula gives, NaN included.
#[derive(Debug, Clone, PartialEq)]
pub enum Scaling {
    /// Plain RoPE.
    None,
    /// Position interpolation.
    Linear(Linear),
    /// A larger base, fixed.
    Ntk(Ntk),
    /// A larger base that grows with the length.
    Dynamic(Dynamic),
    /// A ramp from unchanged to interpolated, and a factor on cos and sin.
    Yarn(Yarn),
    /// One divisor per pair, from one of two lists by length.
    LongRope(LongRope),
    /// The ramp of Llama 3.1, over wavelengths.
    Llama3(Llama3),
    /// Frequencies spread over the whole head, the slow ones zero.
    Proportional(Proportional),
}

impl Scaling {
    /// The word for the family on the command line and in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Linear(_) => "linear",
            Self::Ntk(_) => "ntk",
            Self::Dynamic(_) => "dynamic",
            Self::Yarn(_) => "yarn",
            Self::LongRope(_) => "longrope",
            Self::Llama3(_) => "llama3",
            Self::Proportional(_) => "proportional",
        }
    }

    /// Whether the parameters are in range and fit `rope`.
    ///
    /// # Errors
    ///
    /// The first parameter that does not, in one sentence.
    pub fn check(&self, rope: &Rope) -> Result<(), ScalingError> {
        rope.check()?;
        match self {
            Self::None => Ok(()),
            Self::Linear(linear) => linear.check(),
            Self::Ntk(ntk) => ntk.check(rope),
            Self::Dynamic(dynamic) => dynamic.check(rope),
            Self::Yarn(yarn) => yarn.check(rope),
            Self::LongRope(longrope) => longrope.check(rope),
            Self::Llama3(llama3) => llama3.check(),
            Self::Proportional(proportional) => proportional.check(),
        }
    }

    /// The frequencies in f64, straight from the formula.
    ///
    /// `length` is the largest position plus one; only [`Dynamic`] and
    /// [`LongRope`] look at it.
    pub fn frequencies(&self, rope: &Rope, length: usize) -> Frequencies {
        let inv_freq = match self {
            Self::None => plain::inv_freq(rope.theta, rope.rotary_dim),
            Self::Linear(linear) => linear.inv_freq(rope),
            Self::Ntk(ntk) => ntk.inv_freq(rope),
            Self::Dynamic(dynamic) => dynamic.inv_freq(rope, length),
            Self::Yarn(yarn) => yarn.inv_freq(rope),
            Self::LongRope(longrope) => longrope.inv_freq(rope, length),
            Self::Llama3(llama3) => llama3.inv_freq(rope),
            Self::Proportional(proportional) => proportional.inv_freq(rope),
        };
        Frequencies {
            inv_freq,
            attention_factor: self.attention_factor(length),
        }
    }

    /// The frequencies as transformers 4.57 computes them in f32 on the CPU.
    ///
    /// Operations and their order are those of `modeling_rope_utils.py`, powers
    /// are rounded once from f64: bit for bit what torch gives for 4 and 8
    /// pairs. torch's vectorized power, which serves longer lists, may differ
    /// in the last place. Where a factor of 1 must change nothing, the plain
    /// frequencies come back bit for bit.
    pub fn frequencies_hf(&self, rope: &Rope, length: usize) -> FrequenciesF32 {
        let inv_freq = match self {
            Self::None => plain::inv_freq_hf(rope.theta as f32, rope.rotary_dim),
            Self::Linear(linear) => linear.inv_freq_hf(rope),
            Self::Ntk(ntk) => ntk.inv_freq_hf(rope),
            Self::Dynamic(dynamic) => dynamic.inv_freq_hf(rope, length),
            Self::Yarn(yarn) => yarn.inv_freq_hf(rope),
            Self::LongRope(longrope) => longrope.inv_freq_hf(rope, length),
            Self::Llama3(llama3) => llama3.inv_freq_hf(rope),
            Self::Proportional(proportional) => proportional.inv_freq_hf(rope),
        };
        FrequenciesF32 {
            inv_freq,
            attention_factor: self.attention_factor(length),
        }
    }

    /// Factor m on cos and on sin at that length.
    pub fn attention_factor(&self, length: usize) -> f64 {
        match self {
            Self::Yarn(yarn) => yarn.attention_factor(),
            Self::LongRope(longrope) => longrope.attention_factor(length),
            _ => 1.0,
        }
    }

    /// Whether the frequencies or the factor differ between two lengths, so
    /// that a graph has to choose while it runs.
    pub fn depends_on_length(&self) -> bool {
        match self {
            Self::Dynamic(_) => true,
            Self::LongRope(longrope) => longrope.depends_on_length(),
            _ => false,
        }
    }

    /// Whether the result is plain RoPE of the same θ, bit for bit, at every
    /// length. A [`Dynamic`] factor of 1 is not: its base still grows.
    pub fn is_identity(&self, rope: &Rope) -> bool {
        match self {
            Self::None => true,
            Self::Linear(linear) => linear.factor == 1.0,
            Self::Ntk(ntk) => ntk.factor == 1.0,
            Self::Dynamic(_) => false,
            Self::Yarn(yarn) => yarn.factor == 1.0 && yarn.attention_factor() == 1.0,
            Self::LongRope(longrope) => longrope.is_identity(),
            Self::Llama3(llama3) => llama3.factor == 1.0,
            Self::Proportional(proportional) => {
                proportional.factor == 1.0
                    && rope.rotary_dim == rope.head_dim
                    && proportional.turning_pairs(rope) == rope.pairs()
            }
        }
    }

    /// Context length before the scaling, where a parameter names it.
    pub fn original_length(&self) -> Option<usize> {
        match self {
            Self::Dynamic(dynamic) => Some(dynamic.max_position),
            Self::Yarn(yarn) => Some(yarn.original_length),
            Self::LongRope(longrope) => Some(longrope.original_length),
            Self::Llama3(llama3) => Some(llama3.original_length),
            _ => None,
        }
    }
}
