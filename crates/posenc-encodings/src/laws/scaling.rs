//! What any law computes and says.

use serde_json::Value;

use super::facts::Facts;
use super::given::{Chosen, Extension};
use super::law::Law;
use super::plain::Plain;
use super::rope::{Frequencies, FrequenciesF32, Rope};
use super::shared::{FACTOR, ORIGINAL_LENGTH};
use super::{LawError, LawName, Scaling, ScalingError};
use crate::hf::Writer;
use crate::inferred::Inferred;
use crate::param::Given;

impl Scaling {
    /// A law with the values of a request, checked against `rope`, and the values that were not
    /// given. A factor left out is `max_length / original_length`, without these the law's default.
    ///
    /// # Errors
    /// A value that is missing, that has no effect on the law, or that is out of range.
    pub fn from_given(
        law: LawName,
        given: &Given,
        extension: Extension,
        rope: &Rope,
    ) -> Result<(Self, Vec<Inferred>), LawError> {
        law.check(given)?;
        let Extension {
            factor,
            original_length,
            max_length,
        } = extension;
        let mut chosen = Chosen {
            facts: law.facts(),
            given,
            extension: Extension {
                factor: given.number(FACTOR.name).or(factor),
                original_length: given.count(ORIGINAL_LENGTH.name).or(original_length),
                max_length,
            },
            rope,
            inferred: vec![],
        };
        let lengths = chosen.extension;
        if let (None, Some(max_length), Some(original_length), Some(_)) = (
            lengths.factor,
            lengths.max_length,
            lengths.original_length,
            law.facts().factor,
        ) && max_length < original_length
        {
            let shorter = ScalingError::Shorter {
                max_length,
                original_length,
            };
            return Err(shorter.into());
        }
        let scaling = Self::of_given(law, &mut chosen)?;
        scaling.check(rope)?;
        Ok((scaling, chosen.inferred))
    }

    fn facts(&self) -> &'static Facts {
        self.law_name().map_or_else(Plain::facts, LawName::facts)
    }

    /// The word of the law on the command line and in JSON, `none` for plain RoPE.
    pub fn name(&self) -> &'static str {
        self.facts().word
    }

    /// Whether the parameters are in range and fit `rope`.
    ///
    /// # Errors
    ///
    /// The first parameter that does not, in one sentence.
    pub fn check(&self, rope: &Rope) -> Result<(), ScalingError> {
        rope.check()?;
        self.law().check(rope)
    }

    /// The keys with which a Hugging Face config says this law of a rotary embedding. `max_length` is
    /// the length that the config says the model is made for; `is_parameters` whether it says
    /// `rope_parameters`, as version 5 of transformers does.
    pub fn to_hf(&self, rope: &Rope, max_length: Option<usize>, is_parameters: bool) -> Writer {
        let mut config = Writer::new(rope.theta, max_length, is_parameters);
        self.law().to_hf(rope, &mut config);
        config
    }

    /// The frequencies in f64, straight from the formula; `length` is the largest position plus
    /// one.
    pub fn frequencies(&self, rope: &Rope, length: usize) -> Frequencies {
        Frequencies {
            inv_freq: self.law().inv_freq(rope, length),
            attention_factor: self.attention_factor(length),
        }
    }

    /// The frequencies as transformers 4.57 computes them in f32 on the CPU.
    ///
    /// Operations and their order are those of `modeling_rope_utils.py`, powers
    /// are rounded once from f64: bit for bit what torch gives for 4 and 8
    /// pairs. torch's vectorized power, which serves longer lists, may differ
    /// in the last place. Where a factor of 1 must change nothing, the plain
    /// frequencies are the same bit for bit.
    pub fn frequencies_hf(&self, rope: &Rope, length: usize) -> FrequenciesF32 {
        FrequenciesF32 {
            inv_freq: self.law().inv_freq_hf(rope, length),
            attention_factor: self.attention_factor(length),
        }
    }

    /// Factor m on cos and on sin at that length.
    pub fn attention_factor(&self, length: usize) -> f64 {
        self.law().attention_factor(length)
    }

    /// Factor on the softmax scale of the whole score in latent attention: DeepSeek's correction,
    /// 1 for most laws.
    pub fn softmax_factor(&self) -> f64 {
        self.law().softmax_factor()
    }

    /// Whether the frequencies or the factor differ between two lengths, so
    /// that a graph has to choose while it runs.
    pub fn depends_on_length(&self) -> bool {
        self.law().depends_on_length()
    }

    /// Whether the result is plain RoPE of the same θ, bit for bit, at every
    /// length.
    pub fn is_identity(&self, rope: &Rope) -> bool {
        self.law().is_identity(rope)
    }

    /// Context length before the scaling, where a parameter names it.
    pub fn original_length(&self) -> Option<usize> {
        self.law().original_length()
    }

    /// The length that a context of `original` tokens is extended to; absent where it is beyond
    /// any model's.
    pub fn extended(&self, original: usize) -> Option<usize> {
        let length = original as f64 * self.law().extension().max(1.0);
        (length.is_finite() && length < 1e12).then_some(length.round() as usize)
    }

    /// Whether its pairs span the whole head, whatever width rotates.
    pub fn spans_head(&self) -> bool {
        self.facts().spans_head
    }

    /// Whether a graph that computes it at one length looks like plain RoPE of another θ.
    pub fn reads_as_plain(&self) -> bool {
        self.facts().reads_as_plain
    }

    /// The parameters by their keys in records, with the word of the law as `type`; `null` for
    /// plain RoPE.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }
}
