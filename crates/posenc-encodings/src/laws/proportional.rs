//! Proportional RoPE (p-RoPE): the frequencies of the whole head, of which
//! only the fastest share p rotates.
//!
//! `k = ⌊p·head_dim/2⌋` pairs have `θ^(-2i/head_dim) / s`, the other
//! `head_dim/2 - k` have 0 (cos 1, sin 0). Pairs are `(x_i, x_(i + head_dim/2))`
//! over the whole head: another function than a partial rotary embedding of
//! the same share, whose pairs are within the first `p·head_dim` elements.
//!
//! Source: Barbero et al., arXiv:2410.06205, section 6; Hugging Face 5
//! `proportional` (Gemma 4).

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

/// The key of the share.
const SHARE: &str = "partial_rotary_factor";

const FACTS: Facts = Facts {
    word: "proportional",
    about: "Frequencies spread over the whole head, the slow ones zero",
    source: "Barbero et al. 2024, arXiv 2410.06205",
    params: &[FACTOR, ORIGINAL_LENGTH],
    factor: Some(4.0),
    hf_types: &[HfType::word("proportional")],
    hf_keys: &["factor"],
    spans_head: true,
    ..Facts::NONE
};

/// Parameters of proportional RoPE.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Proportional {
    /// Divisor s of every frequency, at least 1.
    pub factor: f64,
    /// Share p of the pairs that rotate, from 0 to 1.
    #[serde(rename = "partial_rotary_factor")]
    pub share: f64,
}

impl Proportional {
    /// Checked parameters.
    ///
    /// # Errors
    ///
    /// A share outside 0 to 1; a factor below 1 or not finite.
    pub fn new(share: f64, factor: f64) -> Result<Self, ScalingError> {
        let proportional = Self { factor, share };
        proportional.check_values()?;
        Ok(proportional)
    }

    fn check_values(&self) -> Result<(), ScalingError> {
        error::factor(FACTOR.name, self.factor)?;
        if (0.0..=1.0).contains(&self.share) {
            Ok(())
        } else {
            Err(ScalingError::Share {
                name: SHARE,
                value: self.share,
            })
        }
    }

    /// The share of which `⌊p·head_dim/2⌋` in floats is this number of pairs: the next greater
    /// float where the quotient is rounded down and its product would lose a pair.
    fn share_of(pairs: usize, head_dim: usize) -> f64 {
        let share = (2 * pairs) as f64 / head_dim as f64;
        if pairs_of(share, head_dim) < pairs {
            share.next_up()
        } else {
            share
        }
    }

    /// Number k of pairs with a frequency above zero.
    pub fn rotating_pairs(&self, rope: &Rope) -> usize {
        pairs_of(self.share, rope.head_dim)
    }
}

/// `⌊p·head_dim/2⌋` as Hugging Face computes it, whose models have that many pairs.
fn pairs_of(share: f64, head_dim: usize) -> usize {
    let k = (share * head_dim as f64 / 2.0).floor();
    // A float that is negative or NaN becomes 0 here.
    (k as usize).min(head_dim / 2)
}

impl Law for Proportional {
    fn facts() -> &'static Facts {
        &FACTS
    }

    /// The share is that of the rotary width in the head.
    fn from_given(given: &mut Chosen<'_>) -> Result<Self, LawError> {
        let share = Self::share_of(given.rope.pairs(), given.rope.head_dim);
        let factor = given.factor();
        Ok(Self { factor, share })
    }

    fn from_hf(config: &mut Reader<'_>) -> Result<Self, HfConfigError> {
        let factor = config.number("factor")?.unwrap_or(1.0);
        let share = match config.section.f64(SHARE)? {
            Some(share) => share,
            None => config.config.f64(SHARE)?.unwrap_or(1.0),
        };
        Ok(Self::new(share, factor)?)
    }

    fn to_hf(&self, _: &Rope, config: &mut Writer) {
        config.rope_type = Some(FACTS.word);
        config.set("factor", self.factor);
        config.set(SHARE, self.share);
    }

    fn check(&self, _: &Rope) -> Result<(), ScalingError> {
        self.check_values()
    }

    fn inv_freq(&self, rope: &Rope, _: usize) -> Vec<f64> {
        let rotating = self.rotating_pairs(rope);
        let whole = plain::inv_freq(rope.theta, rope.head_dim);
        let scaled = whole.into_iter().enumerate();
        scaled
            .map(|(i, f)| if i < rotating { f / self.factor } else { 0.0 })
            .collect()
    }

    fn inv_freq_hf(&self, rope: &Rope, _: usize) -> Vec<f32> {
        let rotating = self.rotating_pairs(rope);
        let factor = self.factor as f32;
        let whole = plain::inv_freq_hf(rope.theta as f32, rope.head_dim);
        let scaled = whole.into_iter().enumerate();
        scaled
            .map(|(i, f)| if i < rotating { f / factor } else { 0.0 })
            .collect()
    }

    fn is_identity(&self, rope: &Rope) -> bool {
        self.factor == 1.0
            && rope.rotary_dim == rope.head_dim
            && self.rotating_pairs(rope) == rope.pairs()
    }

    fn extension(&self) -> f64 {
        self.factor
    }

    fn fits(search: Search, samples: &Samples, _: &Candidates) -> Vec<Fit> {
        if search == Search::Resting {
            fit(samples).into_iter().collect()
        } else {
            vec![]
        }
    }
}

/// Geometric over the whole head, then pairs that do not rotate.
fn fit(samples: &Samples) -> Option<Fit> {
    let rotating = samples.pairs();
    let row = geometric::fit(samples).filter(|_| samples.is_unit_factor())?;
    let factor = row.factor.unwrap_or(1.0);
    // Rounded to zero is not zero: the next pair must be large enough to show.
    let next = row
        .theta
        .map(|theta| samples.plain(theta, rotating) / factor);
    if next.is_some_and(|next| next <= samples.vanishing()) {
        return None;
    }
    #[derive(Serialize)]
    struct Found {
        /// A share that gives this number of pairs.
        partial_rotary_factor: f64,
        factor: f64,
    }
    let found = Found {
        partial_rotary_factor: Proportional::share_of(rotating, samples.dim),
        factor,
    };
    Some(Fit {
        found: Identified {
            theta: row.theta,
            scaling: Some(IdentifiedScaling::new(FACTS.word, &found)),
            fit_error: row.error,
        },
        cost: row.cost,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::{Extension, LawName, Scaling};
    use crate::param::Given;

    #[test]
    fn every_rotary_width_keeps_all_its_pairs() {
        let mut lost = vec![];
        for head_dim in (2..=512).step_by(2) {
            for rotary_dim in (2..=head_dim).step_by(2) {
                let rope = Rope::new(10_000.0, rotary_dim, head_dim).unwrap();
                let (given, extension) = (Given::default(), Extension::default());
                let scaling = Scaling::from_given(LawName::Proportional, &given, extension, &rope);
                let Ok((Scaling::Proportional(law), _)) = scaling else {
                    panic!("{scaling:?}");
                };
                let case = format!("{rotary_dim} of {head_dim}");
                assert_eq!(law.rotating_pairs(&rope), rope.pairs(), "{case}");
                let moving = law.inv_freq(&rope, 1).iter().filter(|f| **f > 0.0).count();
                assert_eq!(moving, rope.pairs(), "{case}");
                let quotient = rotary_dim as f64 / head_dim as f64;
                if pairs_of(quotient, head_dim) < rope.pairs() {
                    lost.push((head_dim, rotary_dim));
                } else {
                    assert_eq!(law.share, quotient, "{case}");
                }
            }
        }
        assert!(
            lost.contains(&(88, 30)) && lost.contains(&(104, 30)),
            "control"
        );
    }

    #[test]
    fn a_share_of_a_config_has_as_many_pairs_as_in_hugging_face() {
        let pairs = |share: f64, head_dim: usize| {
            let rope = Rope::new(10_000.0, 2, head_dim).unwrap();
            Proportional::new(share, 1.0).unwrap().rotating_pairs(&rope)
        };
        // int(share * head_dim // 2) of Python.
        assert_eq!(pairs(30.0 / 88.0, 88), 14);
        assert_eq!(pairs(0.25, 256), 32);
        assert_eq!(pairs(0.26, 64), 8);
        assert_eq!(pairs(1.0, 6), 3);
        assert_eq!(pairs(0.0, 6), 0);
    }
}
