//! LongRoPE (`su` in older configs): one searched divisor per pair,
//! `f_i / e_i`, with the list `long_factor` for lengths above the original
//! length L0 and `short_factor` up to it.
//!
//! cos and sin are multiplied by `m = sqrt(1 + ln s / ln L0)` at every length,
//! unless given; runtimes with `short_mscale` and `long_mscale` switch m too.
//!
//! Source: Ding et al., arXiv:2402.13753, section 3.3 and the released code;
//! Hugging Face `_compute_longrope_parameters` and `longrope_frequency_update`.

mod identify;

use serde::{Deserialize, Serialize};

use super::error::{self, LawError, ScalingError};
use super::facts::Facts;
use super::given::Chosen;
use super::identify::evidence::Samples;
use super::law::Law;
use super::plain;
use super::rope::Rope;
use super::shared::{ATTENTION_FACTOR, FACTOR, ORIGINAL_LENGTH};
use crate::hf::{HfConfigError, HfType, Reader, Writer};
use crate::param::{Param, Values};

pub use identify::identify_lists;

const SHORT: Param = Param {
    name: "short-factor",
    values: Values::Numbers,
    help: "divisors up to the original length, one per pair",
    unit: "",
    default: "",
};

const LONG: Param = Param {
    name: "long-factor",
    values: Values::Numbers,
    help: "divisors above it, one per pair",
    unit: "",
    default: "",
};

const FACTS: Facts = Facts {
    word: identify::WORD,
    about: "One divisor per pair, from one of two lists by length",
    source: "Ding et al. 2024, arXiv 2402.13753",
    params: &[FACTOR, ORIGINAL_LENGTH, ATTENTION_FACTOR, SHORT, LONG],
    factor: Some(4.0),
    // Early Phi-3 configs said `su`, and `yarn` with lists of divisors.
    hf_types: &[
        HfType::word("longrope"),
        HfType::word("su"),
        HfType {
            word: "yarn",
            with: &["short_factor", "long_factor"],
        },
    ],
    hf_keys: &[
        "short_factor",
        "long_factor",
        "factor",
        "attention_factor",
        "original_max_position_embeddings",
        "short_mscale",
        "long_mscale",
    ],
    ..Facts::NONE
};

/// The source of the factor on cos and sin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LongRopeAttention {
    /// Given.
    Explicit(f64),
    /// `sqrt(1 + ln s / ln L0)` of this extension s; 1 for `s ≤ 1`. Hugging
    /// Face takes s from the ratio of the two lengths where the config has the
    /// original one outside of the scaling dict, else from `factor`.
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "Record", from = "Record")]
pub struct LongRope {
    /// Divisors up to the original length, `[pairs]`.
    pub short_factor: Vec<f64>,
    /// Divisors above the original length, `[pairs]`.
    pub long_factor: Vec<f64>,
    /// Length L0 above which `long_factor` is used.
    pub original_length: usize,
    /// Factor on cos and sin.
    pub attention: LongRopeAttention,
}

impl LongRope {
    /// Whether the long list is used at that length.
    pub fn is_long(&self, length: usize) -> bool {
        length > self.original_length
    }

    fn divisors(&self, length: usize) -> impl Iterator<Item = f64> {
        let list = if self.is_long(length) {
            &self.long_factor
        } else {
            &self.short_factor
        };
        list.iter().copied().chain(std::iter::repeat(f64::NAN))
    }
}

impl Law for LongRope {
    fn facts() -> &'static Facts {
        &FACTS
    }

    fn from_given(given: &mut Chosen<'_>) -> Result<Self, LawError> {
        let original_length = given.original_length()?;
        Ok(Self {
            short_factor: given.needed(&SHORT, given.numbers(&SHORT))?,
            long_factor: given.needed(&LONG, given.numbers(&LONG))?,
            original_length,
            attention: match given.number(&ATTENTION_FACTOR) {
                Some(m) => LongRopeAttention::Explicit(m),
                None => LongRopeAttention::Extension(given.factor()),
            },
        })
    }

    /// A length outside of the scaling dict is the original one and gives the extension by its
    /// ratio to `max_position_embeddings`, whatever `factor` says. A length inside is the original
    /// one too, and gives the extension where there is no `factor`; without either the model's
    /// length is the original one.
    fn from_hf(config: &mut Reader<'_>) -> Result<Self, HfConfigError> {
        let max = config.max_length()?;
        let factor = config.section.f64("factor")?;
        let known = |length: Option<usize>| length.filter(|&length| length > 0);
        let outer = known(config.outer_original_length()?);
        let inner = match outer {
            None => known(config.original_length()?),
            Some(_) => None,
        };
        let ratio = |length: usize| max.map(|max| max as f64 / length as f64);
        let (original_length, extension) = match (outer, inner) {
            (Some(length), _) => (length, ratio(length)),
            (None, Some(length)) => (length, factor.or_else(|| ratio(length))),
            (None, None) => (config.max_as_original_length()?, factor),
        };
        let attention = attention(config, extension, original_length)?;
        Ok(Self {
            short_factor: config.needed_numbers("short_factor")?,
            long_factor: config.needed_numbers("long_factor")?,
            original_length,
            attention,
        })
    }

    /// The original length is outside of `rope_scaling`, where transformers 4 looks for it; the
    /// extension is then the ratio of the two lengths, or else the factor on cos and sin is given.
    fn to_hf(&self, _: &Rope, config: &mut Writer) {
        config.rope_type = Some(identify::WORD);
        config.set("short_factor", self.short_factor.clone());
        config.set("long_factor", self.long_factor.clone());
        let max = config.max_length.map(|max| max as f64);
        let is_ratio = |s: f64| max.is_some_and(|max| max / self.original_length as f64 == s);
        match self.attention {
            LongRopeAttention::Explicit(m) => config.set("attention_factor", m),
            LongRopeAttention::Switched { short, long } => {
                config.set("short_mscale", short);
                config.set("long_mscale", long);
            }
            LongRopeAttention::Extension(s) if config.is_parameters => config.set("factor", s),
            LongRopeAttention::Extension(s) if is_ratio(s) => {}
            LongRopeAttention::Extension(_) => {
                let m = self.attention_factor(self.original_length);
                config.set("attention_factor", m);
            }
        }
        if config.is_parameters {
            config.set_original_length(self.original_length);
        } else {
            config.set_outer_original_length(self.original_length);
        }
    }

    fn check(&self, rope: &Rope) -> Result<(), ScalingError> {
        error::length("original_length", 2, self.original_length)?;
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
            LongRopeAttention::Extension(s) => error::positive(FACTOR.name, s),
            LongRopeAttention::Switched { short, long } => {
                error::positive("short_mscale", short)?;
                error::positive("long_mscale", long)
            }
        }
    }

    fn inv_freq(&self, rope: &Rope, length: usize) -> Vec<f64> {
        let plain = plain::inv_freq(rope.theta, rope.rotary_dim);
        plain
            .into_iter()
            .zip(self.divisors(length))
            .map(|(f, e)| f / e)
            .collect()
    }

    fn inv_freq_hf(&self, rope: &Rope, length: usize) -> Vec<f32> {
        let powers = plain::powers_hf(rope.theta as f32, rope.rotary_dim);
        powers
            .into_iter()
            .zip(self.divisors(length))
            .map(|(p, e)| 1.0 / (e as f32 * p))
            .collect()
    }

    fn attention_factor(&self, length: usize) -> f64 {
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

    fn depends_on_length(&self) -> bool {
        let switched = match self.attention {
            LongRopeAttention::Switched { short, long } => short != long,
            _ => false,
        };
        switched || self.short_factor != self.long_factor
    }

    fn is_identity(&self, _: &Rope) -> bool {
        let ones = |list: &[f64]| list.iter().all(|&e| e == 1.0);
        let lengths = [self.original_length, self.original_length.saturating_add(1)];
        ones(&self.short_factor)
            && ones(&self.long_factor)
            && lengths
                .iter()
                .all(|&length| self.attention_factor(length) == 1.0)
    }

    fn original_length(&self) -> Option<usize> {
        Some(self.original_length)
    }

    fn extension(&self) -> f64 {
        match self.attention {
            LongRopeAttention::Extension(factor) => factor,
            _ => 1.0,
        }
    }

    fn theta(samples: &Samples) -> Option<f64> {
        identify::theta_of_decimals(samples)
    }
}

/// Where a config takes the factor on cos and sin from.
fn attention(
    config: &mut Reader<'_>,
    extension: Option<f64>,
    original_length: usize,
) -> Result<LongRopeAttention, HfConfigError> {
    let explicit = config.number("attention_factor")?;
    let short = config.number("short_mscale")?;
    let long = config.number("long_mscale")?;
    if let Some(m) = explicit {
        let switched = [("short_mscale", short), ("long_mscale", long)];
        if let Some((key, _)) = switched.iter().find(|(_, value)| value.is_some()) {
            let path = |key| config.section.path(key);
            let (first, second) = (path("attention_factor"), path(key));
            return Err(HfConfigError::Conflict { first, second });
        }
        return Ok(LongRopeAttention::Explicit(m));
    }
    if let (Some(short), Some(long)) = (short, long) {
        return Ok(LongRopeAttention::Switched { short, long });
    }
    let extension = config.needed(&config.section, "factor", extension)?;
    config.note(FACTOR.name, extension, "length ratio or factor");
    let computed = LongRopeAttention::Extension(extension);
    if short.is_none() && long.is_none() {
        return Ok(computed);
    }
    // The one that is missing is the computed one.
    let m = LongRope {
        short_factor: Vec::new(),
        long_factor: Vec::new(),
        original_length,
        attention: computed,
    }
    .attention_factor(original_length);
    let (short, long) = (short.unwrap_or(m), long.unwrap_or(m));
    Ok(LongRopeAttention::Switched { short, long })
}

/// How a record keeps it: with the factors on cos and sin that follow from the other parameters.
#[derive(Serialize, Deserialize)]
struct Record {
    original_length: usize,
    short_factor: Vec<f64>,
    long_factor: Vec<f64>,
    short_mscale: f64,
    long_mscale: f64,
}

impl From<LongRope> for Record {
    fn from(longrope: LongRope) -> Self {
        let (short_mscale, long_mscale) = match longrope.attention {
            LongRopeAttention::Switched { short, long } => (short, long),
            _ => {
                let m = longrope.attention_factor(longrope.original_length);
                (m, m)
            }
        };
        Self {
            original_length: longrope.original_length,
            short_factor: longrope.short_factor,
            long_factor: longrope.long_factor,
            short_mscale,
            long_mscale,
        }
    }
}

impl From<Record> for LongRope {
    fn from(record: Record) -> Self {
        Self {
            short_factor: record.short_factor,
            long_factor: record.long_factor,
            original_length: record.original_length,
            attention: LongRopeAttention::Switched {
                short: record.short_mscale,
                long: record.long_mscale,
            },
        }
    }
}
