//! What an identification says.

use serde::Serialize;

use crate::laws::{Linear, Llama3, Proportional, RampBounds, Scaling, Yarn};

/// The reading of one set of frequencies.
#[derive(Debug, Clone, PartialEq)]
pub struct Identified {
    /// Base θ; absent where the numbers do not fix it.
    pub theta: Option<f64>,
    /// The scaling; absent for plain RoPE.
    pub scaling: Option<IdentifiedScaling>,
    /// Largest relative difference between the frequencies and what the
    /// reading gives; 0 for a custom list.
    pub fit_error: f64,
}

impl Identified {
    pub(super) fn custom(inv_freq: &[f64], theta: Option<f64>) -> Self {
        let scaling = Some(IdentifiedScaling::Custom {
            inv_freq: inv_freq.to_vec(),
        });
        Self {
            theta,
            scaling,
            fit_error: 0.0,
        }
    }

    /// A law that computes these frequencies, for checks and rewrites.
    ///
    /// Absent for a custom list and where the parameters are not fixed. The
    /// factor on cos and sin is the one given, not the one of the family.
    pub fn scaling(&self, attention_factor: f64) -> Option<Scaling> {
        match &self.scaling {
            None => Some(Scaling::None),
            Some(scaling) => scaling.scaling(attention_factor),
        }
    }
}

/// A scaling as far as its numbers tell; serialized as in `inspect --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum IdentifiedScaling {
    /// Every frequency divided by one factor.
    Linear {
        /// The divisor s.
        factor: f64,
    },
    /// A ramp over the pairs.
    Yarn(IdentifiedYarn),
    /// A ramp over the wavelengths. Only ratios are fixed by the numbers, so
    /// `low_freq_factor` is taken to be 1.
    Llama3 {
        /// Divisor s of the slow pairs.
        factor: f64,
        /// Taken to be 1.
        low_freq_factor: f64,
        /// In units of `low_freq_factor`.
        high_freq_factor: f64,
        /// The roundest length of the range.
        original_length: usize,
        /// All lengths that give these numbers, both ends included.
        original_length_range: [usize; 2],
        /// Whether only one length does.
        exact: bool,
    },
    /// Frequencies of the whole head, of which the slow ones rest.
    Proportional {
        /// Share of the pairs that turn; the smallest that gives their number.
        partial_rotary_factor: f64,
        /// Divisor of the frequencies.
        factor: f64,
    },
    /// Two lists of divisors, switched by length.
    LongRope {
        /// Divisors up to the original length, `[pairs]`; absent where θ is unknown.
        short_factor: Option<Vec<f64>>,
        /// Divisors above it, `[pairs]`; absent where θ is unknown.
        long_factor: Option<Vec<f64>>,
        /// Length above which the long list holds.
        original_length: usize,
    },
    /// A base that grows with the length.
    Dynamic {
        /// Strength s of the growth.
        factor: f64,
        /// Length up to which nothing changes.
        original_length: usize,
    },
    /// Frequencies that no family explains.
    Custom {
        /// The frequencies, `[pairs]`.
        inv_freq: Vec<f64>,
    },
}

/// YaRN as far as its numbers tell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IdentifiedYarn {
    /// Extension s.
    pub factor: f64,
    /// The roundest length of the range.
    pub original_length: Option<usize>,
    /// All lengths that give these numbers with the betas below, both ends
    /// included.
    pub original_length_range: Option<[usize; 2]>,
    /// Whether only one length does.
    pub exact: bool,
    /// 32 where the default explains the numbers, else unknown.
    pub beta_fast: Option<f64>,
    /// 1 where the default explains the numbers, else unknown.
    pub beta_slow: Option<f64>,
    /// Whether the ends of the ramp are whole pairs.
    #[serde(rename = "truncate", serialize_with = "as_bool")]
    pub bounds: Option<RampBounds>,
    /// First and last pair of the ramp, where they are fixed.
    pub ramp: Option<[f64; 2]>,
}

fn as_bool<S: serde::Serializer>(bounds: &Option<RampBounds>, to: S) -> Result<S::Ok, S::Error> {
    bounds
        .map(|bounds| bounds == RampBounds::Truncated)
        .serialize(to)
}

impl IdentifiedScaling {
    /// The word for the family on the command line and in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Linear { .. } => "linear",
            Self::Yarn(_) => "yarn",
            Self::Llama3 { .. } => "llama3",
            Self::Proportional { .. } => "proportional",
            Self::LongRope { .. } => "longrope",
            Self::Dynamic { .. } => "dynamic",
            Self::Custom { .. } => "custom",
        }
    }

    /// The extension s, in the families that have one.
    pub fn factor(&self) -> Option<f64> {
        match self {
            Self::Linear { factor }
            | Self::Yarn(IdentifiedYarn { factor, .. })
            | Self::Llama3 { factor, .. }
            | Self::Proportional { factor, .. }
            | Self::Dynamic { factor, .. } => Some(*factor),
            Self::LongRope { .. } | Self::Custom { .. } => None,
        }
    }

    fn scaling(&self, attention_factor: f64) -> Option<Scaling> {
        match *self {
            Self::Linear { factor } => Some(Scaling::Linear(Linear { factor })),
            Self::Yarn(IdentifiedYarn {
                factor,
                original_length: Some(original_length),
                beta_fast: Some(beta_fast),
                beta_slow: Some(beta_slow),
                bounds: Some(bounds),
                ..
            }) => Some(Scaling::Yarn(Yarn {
                factor,
                original_length,
                beta_fast,
                beta_slow,
                bounds,
                attention_factor: Some(attention_factor),
                mscale: None,
                mscale_all_dim: None,
            })),
            Self::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_length,
                ..
            } => {
                let llama3 = Llama3 {
                    factor,
                    low_freq_factor,
                    high_freq_factor,
                    original_length,
                };
                Some(Scaling::Llama3(llama3))
            }
            Self::Proportional {
                partial_rotary_factor,
                factor,
            } => {
                let share = partial_rotary_factor;
                Some(Scaling::Proportional(Proportional { share, factor }))
            }
            Self::Yarn(_) | Self::LongRope { .. } | Self::Dynamic { .. } | Self::Custom { .. } => {
                None
            }
        }
    }
}

/// One way to explain the numbers.
#[derive(Debug, Clone)]
pub(super) struct Fit {
    pub(super) found: Identified,
    /// Bits that its parameters take.
    pub(super) cost: f64,
}
