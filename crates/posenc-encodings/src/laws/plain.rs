//! Plain RoPE: `f_i = θ^(-2i/d)`, `m = 1`.
//!
//! Source: Su et al., RoFormer, arXiv:2104.09864, section 3.2.2; Hugging Face
//! `_compute_default_rope_parameters`.

use super::error::{LawError, ScalingError};
use super::facts::Facts;
use super::given::Chosen;
use super::law::Law;
use super::rope::Rope;
use super::torch;
use crate::hf::{HfConfigError, HfType, Reader, Writer};

/// `d / (d - 2)`: a base that grows by `s` to this power divides the last pair's frequency by s.
pub(crate) fn base_exponent(rotary_dim: usize) -> f64 {
    let d = rotary_dim as f64;
    d / (d - 2.0)
}

/// The larger base θ' of which the last pair is slower by `strength` and the first as fast as before.
pub(crate) fn grown_base(rope: &Rope, strength: f64) -> f64 {
    rope.theta * strength.powf(base_exponent(rope.rotary_dim))
}

/// That exponent has no value at `d = 2`.
pub(crate) fn needs_two_pairs(law: &'static str, rope: &Rope) -> Result<(), ScalingError> {
    let rotary_dim = rope.rotary_dim;
    if rotary_dim > 2 {
        Ok(())
    } else {
        Err(ScalingError::OnePair { law, rotary_dim })
    }
}

/// `θ^(-2i/d)` for every pair.
pub(crate) fn inv_freq(theta: f64, dim: usize) -> Vec<f64> {
    (0..dim / 2)
        .map(|i| theta.powf(-2.0 * i as f64 / dim as f64))
        .collect()
}

/// `1 / θ^(2i/d)` in f32.
pub(crate) fn inv_freq_hf(theta: f32, dim: usize) -> Vec<f32> {
    powers_hf(theta, dim).into_iter().map(|p| 1.0 / p).collect()
}

/// `θ^(2i/d)` in f32.
pub(crate) fn powers_hf(theta: f32, dim: usize) -> Vec<f32> {
    torch::exponents(dim)
        .map(|x| torch::pow(theta, x))
        .collect()
}

const FACTS: Facts = Facts {
    word: "none",
    about: "The plain encoding",
    source: "Su et al. 2021, arXiv 2104.09864",
    hf_types: &[HfType::word("default"), HfType::word("none")],
    reads_as_plain: true,
    ..Facts::NONE
};

/// Plain RoPE as a law without parameters.
#[derive(Debug)]
pub(crate) struct Plain;

impl Law for Plain {
    fn facts() -> &'static Facts {
        &FACTS
    }

    fn from_given(_: &mut Chosen<'_>) -> Result<Self, LawError> {
        Ok(Self)
    }

    fn from_hf(_: &mut Reader<'_>) -> Result<Self, HfConfigError> {
        Ok(Self)
    }

    fn to_hf(&self, _: &Rope, _: &mut Writer) {}

    fn check(&self, _: &Rope) -> Result<(), ScalingError> {
        Ok(())
    }

    fn inv_freq(&self, rope: &Rope, _: usize) -> Vec<f64> {
        inv_freq(rope.theta, rope.rotary_dim)
    }

    fn inv_freq_hf(&self, rope: &Rope, _: usize) -> Vec<f32> {
        inv_freq_hf(rope.theta as f32, rope.rotary_dim)
    }

    fn is_identity(&self, _: &Rope) -> bool {
        true
    }

    fn extension(&self) -> f64 {
        1.0
    }
}
