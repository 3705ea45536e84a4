//! Llama 3.1: pairs by wavelength `λ = 2π/f`, against the original length L0.
//!
//! A pair of `λ < L0/high_freq_factor` stays, one of `λ > L0/low_freq_factor` is
//! divided by s, and those between them become `(1 - t)·f/s + t·f` with
//! `t = (L0/λ - low_freq_factor)/(high_freq_factor - low_freq_factor)`.
//!
//! Source: Dubey et al., arXiv:2407.21783, section 3.4.2, and Meta's
//! `apply_scaling`; Hugging Face `_compute_llama3_parameters`.

mod identify;

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use super::error::{self, LawError, ScalingError};
use super::facts::Facts;
use super::given::Chosen;
use super::identify::evidence::Samples;
use super::identify::found::Fit;
use super::identify::geometric::Candidates;
use super::identify::search::Search;
use super::law::Law;
use super::rope::Rope;
use super::shared::{FACTOR, ORIGINAL_LENGTH};
use super::{plain, torch};
use crate::hf::{HfConfigError, HfType, Reader, Writer};
use crate::param::{Param, Values};

const LOW: Param = Param {
    name: "low-freq-factor",
    values: Values::Positive,
    help: "rotations within the original length below which a pair is divided by s",
    unit: "rotations",
    default: "1",
};

const HIGH: Param = Param {
    name: "high-freq-factor",
    values: Values::Positive,
    help: "rotations within the original length above which a pair stays",
    unit: "rotations",
    default: "4",
};

const FACTS: Facts = Facts {
    word: identify::WORD,
    about: "The ramp of Llama 3.1 over wavelengths",
    source: "Dubey et al. 2024, arXiv 2407.21783",
    params: &[FACTOR, ORIGINAL_LENGTH, LOW, HIGH],
    factor: Some(8.0),
    hf_types: &[HfType::word("llama3")],
    hf_keys: &[
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    ],
    ..Facts::NONE
};

/// Parameters of the Llama 3.1 scaling.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Llama3 {
    /// Divisor s of the slow pairs, at least 1; 8 in Llama 3.1.
    pub factor: f64,
    /// Context length L0 that the model was trained on; 8192 in Llama 3.1.
    pub original_length: usize,
    /// Rotations within L0, or L0 ÷ wavelength, below which a pair is divided by s; 1 in Llama 3.1.
    pub low_freq_factor: f64,
    /// Rotations within L0 above which a pair stays; 4 in Llama 3.1.
    pub high_freq_factor: f64,
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
        llama3.check_values()?;
        Ok(llama3)
    }

    fn check_values(&self) -> Result<(), ScalingError> {
        error::factor(FACTOR.name, self.factor)?;
        error::positive("low_freq_factor", self.low_freq_factor)?;
        error::positive("high_freq_factor", self.high_freq_factor)?;
        error::length("original_length", 1, self.original_length)?;
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
}

impl Law for Llama3 {
    fn facts() -> &'static Facts {
        &FACTS
    }

    fn from_given(given: &mut Chosen<'_>) -> Result<Self, LawError> {
        let original_length = given.original_length()?;
        Ok(Self {
            factor: given.factor(),
            original_length,
            low_freq_factor: given.number(&LOW).unwrap_or(1.0),
            high_freq_factor: given.number(&HIGH).unwrap_or(4.0),
        })
    }

    fn from_hf(config: &mut Reader<'_>) -> Result<Self, HfConfigError> {
        let factor = config.factor()?;
        let low = config.needed_number("low_freq_factor")?;
        let high = config.needed_number("high_freq_factor")?;
        let length = config.needed_original_length()?;
        Ok(Self::new(factor, low, high, length)?)
    }

    fn to_hf(&self, _: &Rope, config: &mut Writer) {
        config.rope_type = Some(FACTS.word);
        config.set("factor", self.factor);
        config.set("low_freq_factor", self.low_freq_factor);
        config.set("high_freq_factor", self.high_freq_factor);
        config.set_original_length(self.original_length);
    }

    fn check(&self, _: &Rope) -> Result<(), ScalingError> {
        self.check_values()
    }

    fn inv_freq(&self, rope: &Rope, _: usize) -> Vec<f64> {
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

    fn inv_freq_hf(&self, rope: &Rope, _: usize) -> Vec<f32> {
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
                let rotations = torch::div_of_scalar(length as f32, wavelength);
                let t = (rotations - low as f32) / (high - low) as f32;
                (1.0 - t) * f / factor + t * f
            }
        });
        scaled.collect()
    }

    fn is_identity(&self, _: &Rope) -> bool {
        self.factor == 1.0
    }

    fn original_length(&self) -> Option<usize> {
        Some(self.original_length)
    }

    fn extension(&self) -> f64 {
        self.factor
    }

    fn fits(search: Search, samples: &Samples, candidates: &Candidates) -> Vec<Fit> {
        match search {
            Search::Usual => identify::usual(samples, candidates),
            Search::Unusual => identify::unusual(samples, candidates),
            // It always leaves two pairs plain or divides two by one factor, so the frequencies
            // show its base.
            _ => vec![],
        }
    }
}
