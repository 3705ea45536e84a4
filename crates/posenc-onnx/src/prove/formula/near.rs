//! The error model of scores: how far a number that a graph computes may be from the formula's.
//!
//! Each operation rounds to the type, so that what it gives is off by a share of its own size. Of
//! a sum of products every sum on the way is rounded: errors without an order of their own add up
//! as the steps of a random walk do.

use ndarray::ArrayView1;

use crate::prove::bound::{ROUNDINGS, SINGLE};
use posenc_encodings::bias::Sample;

/// A number, and how far a graph may be from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Near {
    pub(crate) value: f64,
    pub(crate) bound: f64,
}

impl Near {
    /// What is stored in a type of precision ε, or passes a few operations in it.
    pub(crate) fn stored(value: f64, epsilon: f64) -> Self {
        Self {
            value,
            bound: ROUNDINGS * epsilon * value.abs(),
        }
    }

    /// What a formula gives that is computed in single precision or better, and stored in a type of
    /// precision ε.
    pub(crate) fn sample(sample: Sample, epsilon: f64) -> Self {
        let mut near = Self::stored(sample.value, epsilon);
        near.bound += ROUNDINGS * epsilon.min(SINGLE) * sample.rounded;
        near
    }

    /// The sum of products.
    pub(crate) fn sum(a: ArrayView1<'_, f64>, b: ArrayView1<'_, f64>, epsilon: f64) -> Self {
        let (mut value, mut squares, mut most) = (0.0f64, 0.0f64, 0.0f64);
        for (a, b) in a.iter().zip(b) {
            value += a * b;
            squares += (a * b).powi(2);
            most = most.max(value.abs());
        }
        Self {
            value,
            bound: walk(a.len(), epsilon) * most.max(squares.sqrt()),
        }
    }

    /// The number and its bound, both times a factor.
    pub(crate) fn times(self, factor: f64) -> Self {
        Self {
            value: self.value * factor,
            bound: self.bound * factor.abs(),
        }
    }

    /// The sum of two numbers, within the sum of their bounds.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            value: self.value + other.value,
            bound: self.bound + other.bound,
        }
    }
}

/// What a sum of so many products is off by, as a share of the largest sum on the way.
pub(crate) fn walk(terms: usize, epsilon: f64) -> f64 {
    2.0 * (ROUNDINGS + (terms as f64).sqrt()) * epsilon
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use ndarray::Array1;
    use posenc_ir::DType;
    use posenc_runtime::feeds::Random;

    use super::*;

    type Round = fn(f64) -> f64;

    /// The sum with every product and every sum rounded.
    fn rounded(a: &Array1<f64>, b: &Array1<f64>, round: Round) -> f64 {
        let products = a.iter().zip(b).map(|(a, b)| round(round(*a) * round(*b)));
        products.fold(0.0, |sum, x| round(sum + x))
    }

    #[test]
    fn sums_by_hand_stay_within_the_bound_and_others_do_not() {
        let types: [(DType, Round); 3] = [
            (DType::F32, |x| f64::from(x as f32)),
            (DType::F16, |x| f16::from_f64(x).to_f64()),
            (DType::BF16, |x| bf16::from_f64(x).to_f64()),
        ];
        let mut random = Random::new(1);
        for (dtype, round) in types {
            let epsilon = dtype.epsilon().unwrap();
            // Sums that only grow lose small terms to coarse types, and go no random way.
            for (terms, lows) in [(1usize, 2), (8, 2), (64, 2), (768, 1)] {
                let mut missed = 0;
                for low in &[-1.0, 0.0][..lows] {
                    let mut numbers =
                        || Array1::from_shape_fn(terms, |_| random.uniform(*low, 1.0));
                    for _ in 0..100 {
                        let (a, b, other) = (numbers(), numbers(), numbers());
                        let near = Near::sum(a.view(), b.view(), epsilon);
                        let off = (rounded(&a, &b, round) - near.value).abs();
                        assert!(off <= near.bound, "{dtype:?} {terms}: {off} {near:?}");
                        let other = rounded(&a, &other, round) - near.value;
                        missed += usize::from(other.abs() > near.bound);
                    }
                }
                // Most others are told apart even in the coarsest type.
                assert!(missed > 40, "{dtype:?} {terms}: {missed}");
            }
        }
    }
}
