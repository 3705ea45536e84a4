//! How far outputs may be apart where the angles of rotations are rounded to a type coarser than f32.
//!
//! An angle p · f in a type of precision ε has an error of up to p · f · ε / 2, and runtimes round it in
//! different places. A score is a sum over the pairs of a head, so that its error is, as a share of it, about
//! the root of their mean square.

use posenc_ir::Model;

use super::bound::SINGLE;
use super::cutout::precision;
use super::tolerance::Tolerance;
use crate::detect::Found;

/// Angles that are rounded: the precision of their type, and the frequencies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Angles(Vec<(f64, Vec<f64>)>);

impl Angles {
    pub(crate) fn of(model: &Model, found: &Found) -> Self {
        let mut all: Vec<(f64, Vec<f64>)> = vec![];
        let sides = found.rotary.iter().flat_map(|s| [&s.query, &s.key]);
        for side in sides {
            let own = &side.rotation.rope.inv_freq;
            let step = precision(model, found, &side.region).angle;
            if step > SINGLE && !all.iter().any(|known| known.0 == step && &known.1 == own) {
                all.push((step, own.clone()));
            }
        }
        Self(all)
    }

    /// The tolerance in a run whose last position is this one.
    pub(crate) fn widen(&self, tolerance: Tolerance, last: usize) -> Tolerance {
        let share = self.0.iter().map(|(step, frequencies)| {
            // Two angles that have nothing in common are apart by the size of what they rotate.
            let error = |f: &f64| (last as f64 * f.abs() * step / 2.0).min(1.0);
            let squares: f64 = frequencies.iter().map(|f| error(f).powi(2)).sum();
            (squares / frequencies.len().max(1) as f64).sqrt()
        });
        Tolerance {
            share: tolerance.share + share.fold(0.0, f64::max),
            ..tolerance
        }
    }
}

#[cfg(test)]
mod tests {
    use posenc_ir::{DType, Tensor};

    use super::*;
    use crate::prove::compare::compare;

    #[test]
    fn the_error_of_angles_grows_with_the_position_up_to_that_of_any_angle() {
        let half = DType::F16.epsilon().unwrap();
        let angles = Angles(vec![(half, vec![1.0, 0.1, 0.01, 0.001])]);
        let usual = Tolerance::of(DType::F16);
        let share = |last| angles.widen(usual, last).share - usual.share;
        assert_eq!(share(0), 0.0);
        // Half a step of 127 in f16 is 0.0625, and there are four pairs.
        assert!((share(127) - 127.0 * half / 4.0).abs() < 1e-3 * share(127) + 1e-3);
        assert!(share(1 << 20) > 0.5 && share(1 << 20) <= 1.0);
        let exact = Angles::default().widen(usual, 1 << 20);
        assert_eq!(exact, usual);
    }

    #[test]
    fn a_wrong_output_stays_one() {
        let half = DType::F16.epsilon().unwrap();
        let angles = Angles(vec![(half, vec![1.0, 0.1, 0.01, 0.001])]);
        let allowed = angles.widen(Tolerance::of(DType::F16), 127);
        let numbers: Vec<f64> = (0..40).map(|i| (f64::from(i) * 0.7).sin()).collect();
        let of = |numbers: &[f64]| Tensor::from_f64(DType::F32, &[40], numbers);
        let is_right = |by: f64| {
            let mut other = numbers.clone();
            other[7] += by;
            compare(&of(&other), &of(&numbers), allowed).ok
        };
        assert!(is_right(0.03) && !is_right(0.15));
    }
}
