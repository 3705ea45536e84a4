//! YaRN: fast pairs stay, slow pairs are interpolated, a linear ramp between.
//!
//! `f_i · (r_i/s + 1 - r_i)` with `r_i = clamp((i - low)/(high - low), 0, 1)`,
//! where `low` and `high` are the pairs that rotate `beta_fast` and `beta_slow`
//! times within the original length L0:
//! `pair(n) = d · ln(L0/(2πn)) / (2 ln θ)`. They are rounded outward unless
//! `truncate` is false, then `low` is at least 0 and `high` at most `d - 1`.
//! cos and sin are multiplied by `m = 0.1 ln s + 1`, unless given.
//!
//! Source: Peng et al., arXiv:2309.00071, sections 3.2 and 3.4; Hugging Face
//! `_compute_yarn_parameters`, which rounds `low` and `high` where the paper
//! does not; DeepSeek-V3's `yarn_get_mscale` for the factor on the softmax scale.

mod identify;
mod ramp;

use serde::{Deserialize, Serialize};

use super::error::{self, LawError, ScalingError};
use super::facts::Facts;
use super::given::Chosen;
use super::identify::evidence::Samples;
use super::identify::found::Fit;
use super::identify::geometric::Candidates;
use super::identify::search::Search;
use super::law::Law;
use super::plain;
use super::rope::Rope;
use super::shared::{ATTENTION_FACTOR, FACTOR, ORIGINAL_LENGTH};
use crate::hf::{HfConfigError, HfType, Reader, Writer};
use crate::param::{Param, ParameterError, Values};

use ramp::{magnitude, ramp_at};

pub use ramp::RampBounds;

const BETA_FAST: Param = Param {
    name: "beta-fast",
    values: Values::Positive,
    help: "rotations within the original length above which a pair stays",
    unit: "rotations",
    default: "32",
};

const BETA_SLOW: Param = Param {
    name: "beta-slow",
    values: Values::Positive,
    help: "rotations within the original length below which a pair is interpolated",
    unit: "rotations",
    default: "1",
};

const MSCALE: Param = Param {
    name: "mscale",
    values: Values::NotNegative,
    help: "weight of ln s in the numerator of the factor on cos and sin",
    unit: "",
    default: "",
};

const MSCALE_ALL_DIM: Param = Param {
    name: "mscale-all-dim",
    values: Values::NotNegative,
    help: "weight of ln s in its denominator",
    unit: "",
    default: "",
};

const NO_TRUNCATE: Param = Param {
    name: "no-truncate",
    values: Values::Switch,
    help: "do not round the ends of the ramp to whole pairs",
    unit: "",
    default: "",
};

const FACTS: Facts = Facts {
    word: identify::WORD,
    about: "A ramp from unchanged to interpolated, and a factor on cos and sin",
    source: "Peng et al. 2023, arXiv 2309.00071",
    params: &[
        FACTOR,
        ORIGINAL_LENGTH,
        BETA_FAST,
        BETA_SLOW,
        MSCALE,
        MSCALE_ALL_DIM,
        ATTENTION_FACTOR,
        NO_TRUNCATE,
    ],
    factor: Some(4.0),
    hf_types: &[HfType::word("yarn")],
    hf_keys: &[
        "factor",
        "original_max_position_embeddings",
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "truncate",
    ],
    ..Facts::NONE
};

/// Parameters of YaRN.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(into = "Record", from = "Record")]
pub struct Yarn {
    /// Context extension s, at least 1.
    pub factor: f64,
    /// Context length L0 that the model was trained on.
    pub original_length: usize,
    /// Rotations within L0 above which a pair stays as it is; 32 by default.
    pub beta_fast: f64,
    /// Rotations within L0 below which a pair is interpolated; 1 by default.
    pub beta_slow: f64,
    /// Rounding of the ends of the ramp.
    pub bounds: RampBounds,
    /// Factor on cos and sin; computed where absent.
    pub attention_factor: Option<f64>,
    /// Weight of `ln s` in the numerator of the computed factor. Counts only
    /// together with `mscale_all_dim`, and zero counts as absent.
    pub mscale: Option<f64>,
    /// Weight of `ln s` in its denominator, and in the factor on the softmax scale.
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
        error::factor(FACTOR.name, self.factor)?;
        error::length("original_length", 1, self.original_length)?;
        error::positive("beta_fast", self.beta_fast)?;
        error::positive("beta_slow", self.beta_slow)?;
        if self.beta_fast < self.beta_slow {
            return Err(ScalingError::Reversed {
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

    /// The pairs `(low, high)` where the ramp starts and ends.
    pub fn ramp(&self, rope: &Rope) -> (f64, f64) {
        let betas = [self.beta_fast, self.beta_slow];
        ramp::ends(rope, self.original_length, betas, self.bounds)
    }
}

impl Law for Yarn {
    fn facts() -> &'static Facts {
        &FACTS
    }

    fn from_given(given: &mut Chosen<'_>) -> Result<Self, LawError> {
        let default = Self::new(1.0, given.original_length()?)?;
        if given.number(&MSCALE).is_some() && given.number(&MSCALE_ALL_DIM).is_none() {
            return Err(ParameterError::Missing {
                parameter: MSCALE_ALL_DIM.name,
                help: MSCALE_ALL_DIM.help,
                of: format!("yarn with {}", MSCALE.name),
            }
            .into());
        }
        Ok(Self {
            factor: given.factor(),
            beta_fast: given.number(&BETA_FAST).unwrap_or(default.beta_fast),
            beta_slow: given.number(&BETA_SLOW).unwrap_or(default.beta_slow),
            bounds: RampBounds::of_truncate(!given.is_on(&NO_TRUNCATE)),
            attention_factor: given.number(&ATTENTION_FACTOR),
            mscale: given.number(&MSCALE),
            mscale_all_dim: given.number(&MSCALE_ALL_DIM),
            ..default
        })
    }

    fn from_hf(config: &mut Reader<'_>) -> Result<Self, HfConfigError> {
        let given = config.number("factor")?;
        // A `null` leaves the factor to the two lengths; without the key, transformers refuses the config.
        let is_left_open = config.section.keys().any(|key| key == "factor");
        let max = config.max_length()?.filter(|_| is_left_open);
        let (factor, original_length) = match (given, max) {
            (None, Some(max)) => {
                let original_length = config.needed_original_length()?;
                let ratio = max as f64 / original_length as f64;
                config.note(FACTOR.name, ratio, "the lengths of the config");
                (ratio, original_length)
            }
            _ => {
                let factor = config.needed(&config.section, "factor", given)?;
                (factor, config.original_or_max_length()?)
            }
        };
        let mut yarn = Self::new(factor, original_length)?;
        // Zero counts as absent.
        let beta = |value: Option<f64>| value.filter(|&beta| beta != 0.0);
        yarn.beta_fast = beta(config.number("beta_fast")?).unwrap_or(yarn.beta_fast);
        yarn.beta_slow = beta(config.number("beta_slow")?).unwrap_or(yarn.beta_slow);
        yarn.attention_factor = config.number("attention_factor")?;
        yarn.mscale = config.number("mscale")?;
        yarn.mscale_all_dim = config.number("mscale_all_dim")?;
        if config.section.bool("truncate")? == Some(false) {
            yarn.bounds = RampBounds::Exact;
            config.note(NO_TRUNCATE.name, true, config.section.path("truncate"));
        }
        Ok(yarn)
    }

    fn to_hf(&self, _: &Rope, config: &mut Writer) {
        config.rope_type = Some(identify::WORD);
        config.set("factor", self.factor);
        config.set_original_length(self.original_length);
        for (key, beta, usual) in [
            ("beta_fast", self.beta_fast, 32.0),
            ("beta_slow", self.beta_slow, 1.0),
        ] {
            config.set_given(key, (beta != usual).then_some(beta));
        }
        config.set_given("attention_factor", self.attention_factor);
        config.set_given("mscale", self.mscale);
        config.set_given("mscale_all_dim", self.mscale_all_dim);
        if self.bounds == RampBounds::Exact {
            config.set("truncate", false);
        }
    }

    fn check(&self, rope: &Rope) -> Result<(), ScalingError> {
        self.check_values()?;
        // The ramp is measured in units of ln θ.
        if rope.theta > 1.0 {
            Ok(())
        } else {
            Err(ScalingError::SmallTheta {
                law: FACTS.word,
                theta: rope.theta,
            })
        }
    }

    fn attention_factor(&self, _: usize) -> f64 {
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

    /// DeepSeek's: `g(s, mscale_all_dim)²`, separate from the factor on cos and sin and 1 without
    /// `mscale_all_dim`.
    fn softmax_factor(&self) -> f64 {
        match self.mscale_all_dim {
            Some(weight) if weight != 0.0 => magnitude(self.factor, weight).powi(2),
            _ => 1.0,
        }
    }

    fn inv_freq(&self, rope: &Rope, _: usize) -> Vec<f64> {
        let (low, high) = self.ramp(rope);
        let plain = plain::inv_freq(rope.theta, rope.rotary_dim);
        let scaled = plain.into_iter().enumerate().map(|(i, f)| {
            let r = ramp_at(i, low, high);
            f * (r / self.factor + (1.0 - r))
        });
        scaled.collect()
    }

    fn inv_freq_hf(&self, rope: &Rope, _: usize) -> Vec<f32> {
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

    fn is_identity(&self, _: &Rope) -> bool {
        self.factor == 1.0 && self.attention_factor(1) == 1.0
    }

    fn original_length(&self) -> Option<usize> {
        Some(self.original_length)
    }

    fn extension(&self) -> f64 {
        self.factor
    }

    fn fits(search: Search, samples: &Samples, candidates: &Candidates) -> Vec<Fit> {
        match search {
            Search::Usual | Search::Widened => identify::usual(samples, candidates),
            Search::Unrounded => identify::unrounded(samples, candidates),
            Search::Unusual => identify::unusual(samples, candidates),
            _ => vec![],
        }
    }
}

/// How a record keeps it: with the factor on cos and sin that follows from the other parameters.
#[derive(Serialize, Deserialize)]
struct Record {
    factor: f64,
    original_length: usize,
    beta_fast: f64,
    beta_slow: f64,
    #[serde(default = "truncated")]
    truncate: bool,
    attention_factor: f64,
}

fn truncated() -> bool {
    true
}

impl From<Yarn> for Record {
    fn from(yarn: Yarn) -> Self {
        Self {
            factor: yarn.factor,
            original_length: yarn.original_length,
            beta_fast: yarn.beta_fast,
            beta_slow: yarn.beta_slow,
            truncate: yarn.bounds == RampBounds::Truncated,
            attention_factor: yarn.attention_factor(1),
        }
    }
}

impl From<Record> for Yarn {
    fn from(record: Record) -> Self {
        Self {
            factor: record.factor,
            original_length: record.original_length,
            beta_fast: record.beta_fast,
            beta_slow: record.beta_slow,
            bounds: RampBounds::of_truncate(record.truncate),
            attention_factor: Some(record.attention_factor),
            mscale: None,
            mscale_all_dim: None,
        }
    }
}
