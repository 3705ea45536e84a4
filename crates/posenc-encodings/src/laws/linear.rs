//! Position interpolation: `f_i / s`, the same as positions divided by `s`.
//!
//! Source: Chen et al., arXiv:2306.15595, section 2.3; Hugging Face
//! `_compute_linear_scaling_rope_parameters`.

use serde::{Deserialize, Serialize};

use super::error::{self, LawError, ScalingError};
use super::facts::Facts;
use super::given::Chosen;
use super::identify::evidence::Samples;
use super::identify::found::{Fit, Identified, IdentifiedScaling};
use super::identify::geometric::{self, Candidates};
use super::identify::search::Search;
use super::law::Law;
use super::plain;
use super::rope::Rope;
use super::shared::{FACTOR, ORIGINAL_LENGTH};
use crate::hf::{HfConfigError, HfType, Reader, Writer};

const FACTS: Facts = Facts {
    word: "linear",
    about: "Position interpolation",
    source: "Chen et al. 2023, arXiv 2306.15595",
    params: &[FACTOR, ORIGINAL_LENGTH],
    factor: Some(4.0),
    hf_types: &[HfType::word("linear")],
    hf_keys: &["factor"],
    ..Facts::NONE
};

/// Parameters of position interpolation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
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
        error::factor(FACTOR.name, factor)?;
        Ok(Self { factor })
    }
}

impl Law for Linear {
    fn facts() -> &'static Facts {
        &FACTS
    }

    fn from_given(given: &mut Chosen<'_>) -> Result<Self, LawError> {
        let factor = given.factor();
        Ok(Self { factor })
    }

    fn from_hf(config: &mut Reader<'_>) -> Result<Self, HfConfigError> {
        Ok(Self::new(config.factor()?)?)
    }

    fn to_hf(&self, _: &Rope, config: &mut Writer) {
        config.rope_type = Some(FACTS.word);
        config.set("factor", self.factor);
    }

    fn check(&self, _: &Rope) -> Result<(), ScalingError> {
        error::factor(FACTOR.name, self.factor)
    }

    fn inv_freq(&self, rope: &Rope, _: usize) -> Vec<f64> {
        let plain = plain::inv_freq(rope.theta, rope.rotary_dim);
        plain.into_iter().map(|f| f / self.factor).collect()
    }

    fn inv_freq_hf(&self, rope: &Rope, _: usize) -> Vec<f32> {
        let plain = plain::inv_freq_hf(rope.theta as f32, rope.rotary_dim);
        plain.into_iter().map(|f| f / self.factor as f32).collect()
    }

    fn is_identity(&self, _: &Rope) -> bool {
        self.factor == 1.0
    }

    fn extension(&self) -> f64 {
        self.factor
    }

    fn fits(search: Search, samples: &Samples, _: &Candidates) -> Vec<Fit> {
        let fit = || {
            let row = geometric::fit(samples)?;
            let factor = row.factor?;
            let found = Identified {
                theta: row.theta,
                scaling: Some(IdentifiedScaling::new(FACTS.word, &Self { factor })),
                fit_error: row.error,
            };
            let cost = row.cost;
            Some(Fit { found, cost })
        };
        if search == Search::Geometric {
            fit().into_iter().collect()
        } else {
            vec![]
        }
    }
}
