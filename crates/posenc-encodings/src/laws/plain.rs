//! Plain RoPE: `f_i = θ^(-2i/d)`, `m = 1`.
//!
//! Source: Su et al., RoFormer, arXiv:2104.09864, section 3.2.2; Hugging Face
//! `_compute_default_rope_parameters`.

use super::torch;

/// `θ^(-2i/d)` for every pair.
pub(super) fn inv_freq(theta: f64, dim: usize) -> Vec<f64> {
    (0..dim / 2)
        .map(|i| theta.powf(-2.0 * i as f64 / dim as f64))
        .collect()
}

/// `1 / θ^(2i/d)` in f32.
pub(super) fn inv_freq_hf(theta: f32, dim: usize) -> Vec<f32> {
    powers_hf(theta, dim).into_iter().map(|p| 1.0 / p).collect()
}

/// `θ^(2i/d)` in f32.
pub(super) fn powers_hf(theta: f32, dim: usize) -> Vec<f32> {
    torch::exponents(dim)
        .map(|x| torch::pow(theta, x))
        .collect()
}
