//! The limit of what an evaluation may allocate and compute.

use crate::tensor::padded_count;

/// How much an evaluation may allocate and compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The most elements of one computed tensor. Above it, only type and dimensions are inferred.
    pub elements: usize,
}

impl Budget {
    /// The most multiplications of one product, per allowed element.
    const WORK: usize = 64;

    /// Whether a tensor of these dimensions may be computed. A dimension of 0 counts as 1, so that
    /// the dimensions of allowed tensors can be multiplied without overflow.
    pub fn allows(&self, dims: &[usize]) -> bool {
        padded_count(dims).is_some_and(|n| n <= self.elements)
    }

    /// Whether a product with these numbers of terms may be computed.
    pub(super) fn allows_work(&self, factors: &[usize]) -> bool {
        padded_count(factors).is_some_and(|n| n <= self.elements.saturating_mul(Self::WORK))
    }
}
