//! Comparing two outputs.

use posenc_ir::Tensor;

use super::tolerance::Tolerance;

/// Masks are made of numbers of at least this magnitude.
pub(crate) const MASKED: f64 = 1e4;

/// How two outputs differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Difference {
    /// The largest absolute difference; `None` where it is not defined: another shape, NaN, an
    /// infinity against a number, or nothing to compare.
    pub max_abs: Option<f64>,
    /// `max_abs` over the largest finite magnitude of what is wanted.
    pub rel: Option<f64>,
    /// The cosine of the angle between the two, over finite elements.
    pub cosine: Option<f64>,
    /// The bound of the element whose error is the largest share of its bound.
    pub bound: f64,
    /// Whether every element is within its bound, and all together are.
    pub ok: bool,
}

impl Difference {
    const NONE: Self = Self {
        max_abs: None,
        rel: None,
        cosine: None,
        bound: 0.0,
        ok: false,
    };
}

/// Compares two outputs. An element is right if it equals what is wanted, infinities included, or
/// is within tolerance. NaN is never right, nor is another shape or an output without elements.
pub(crate) fn compare(got: &Tensor, want: &Tensor, tolerance: Tolerance) -> Difference {
    if got.dims() != want.dims() {
        return Difference::NONE;
    }
    match (got.to_f64s(), want.to_f64s()) {
        (Some(got), Some(want)) => compare_values(&got, &want, tolerance),
        _ => Difference::NONE,
    }
}

/// Compares elements in the same order, as [`compare`] does.
pub(crate) fn compare_values(got: &[f64], want: &[f64], tolerance: Tolerance) -> Difference {
    if got.len() != want.len() || got.is_empty() {
        return Difference::NONE;
    }
    let atol = tolerance.atol.max(tolerance.share * usual(want));
    let mut found = Difference {
        max_abs: Some(0.0),
        bound: atol,
        ok: true,
        ..Difference::NONE
    };
    let (mut scale, mut worst) = (0f64, 0f64);
    let (mut dot, mut left, mut right) = (0.0, 0.0, 0.0);
    let (mut squares, mut count) = (0.0, 0usize);
    for (g, w) in got.iter().zip(want) {
        if g == w && g.is_infinite() {
            continue;
        }
        let error = (g - w).abs();
        let bound = atol + tolerance.rtol * w.abs();
        if !error.is_finite() {
            found.max_abs = None;
            found.ok = false;
            continue;
        }
        found.max_abs = found.max_abs.map(|m| m.max(error));
        squares += error * error;
        count += 1;
        let share = if g == w { 0.0 } else { error / bound };
        if share > worst {
            worst = share;
            found.bound = bound;
        }
        scale = scale.max(w.abs());
        dot += g * w;
        left += g * g;
        right += w * w;
    }
    let mean = (squares / count.max(1) as f64).sqrt();
    found.ok &= worst <= 1.0 && tolerance.rms.is_none_or(|most| mean <= most);
    found.rel = found.max_abs.map(|m| {
        if m == 0.0 {
            0.0
        } else {
            m / scale.max(f64::MIN_POSITIVE)
        }
    });
    let norm = (left * right).sqrt();
    found.cosine = (norm > 0.0).then(|| dot / norm);
    found
}

/// The magnitude that a tenth of the elements exceeds, apart from what masks are made of.
fn usual(values: &[f64]) -> f64 {
    let magnitudes = values.iter().map(|v| v.abs());
    let mut magnitudes: Vec<f64> = magnitudes.filter(|m| *m < MASKED).collect();
    let Some(last) = magnitudes.len().checked_sub(1) else {
        return 0.0;
    };
    let (_, at, _) = magnitudes.select_nth_unstable_by(last - last / 10, f64::total_cmp);
    *at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prove::tolerance::Level;

    const TIGHT: Tolerance = Tolerance {
        atol: 1e-6,
        rtol: 1e-4,
        share: 0.0,
        rms: None,
    };

    #[test]
    fn many_small_differences_are_wrong_where_one_is_not() {
        let noisy = TIGHT.with_noise(Level { max: 1.0, rms: 0.2 });
        let zeros = [0.0; 100];
        let mut one = zeros;
        one[0] = 1.9;
        assert!(compare_values(&one, &zeros, noisy).ok);
        assert!(!compare_values(&[0.5; 100], &zeros, noisy).ok);
        one[0] = 2.1;
        assert!(!compare_values(&one, &zeros, noisy).ok);
        // Less than what is allowed anyway changes nothing.
        let quiet = Level {
            max: 1e-7,
            rms: 1e-7,
        };
        assert_eq!(TIGHT.with_noise(quiet), TIGHT);
    }

    #[test]
    fn the_usual_magnitude_is_not_that_of_masks() {
        let mut values: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!(usual(&values), 19.0);
        values.extend([-1e9, f64::NEG_INFINITY, f64::NAN, -65504.0]);
        assert_eq!(usual(&values), 19.0);
        assert_eq!(usual(&[-1e9]), 0.0);
        let share = Tolerance {
            share: 1e-2,
            ..TIGHT
        };
        let off = |by: f64| compare_values(&[by, 10.0, -10.0], &[0.0, 10.0, -10.0], share).ok;
        assert!(off(0.09) && !off(0.11));
    }

    #[test]
    fn elements_are_right_when_equal_or_within_tolerance() {
        let inf = f64::INFINITY;
        let cases: [(&str, &[f64], &[f64], bool); 12] = [
            ("equal", &[1.0, -2.0], &[1.0, -2.0], true),
            ("close", &[1.0, -2.0001], &[1.0, -2.0], true),
            ("infinities alike", &[inf, 1.0], &[inf, 1.0], true),
            ("all infinite", &[inf], &[inf], true),
            ("far", &[1.0, -2.01], &[1.0, -2.0], false),
            ("small and wrong", &[1e9, 1e-3], &[1e9, 2e-3], false),
            ("order", &[-2.0, 1.0], &[1.0, -2.0], false),
            ("sign", &[-1.0, 2.0], &[1.0, -2.0], false),
            ("other infinity", &[-inf, 1.0], &[inf, 1.0], false),
            ("infinity for a number", &[inf, 1.0], &[3.0, 1.0], false),
            ("nan", &[f64::NAN, 1.0], &[1.0, 1.0], false),
            ("nan on both sides", &[f64::NAN], &[f64::NAN], false),
        ];
        for (name, got, want, ok) in cases {
            assert_eq!(compare_values(got, want, TIGHT).ok, ok, "{name}");
        }
    }

    #[test]
    fn other_shapes_and_empty_outputs_are_never_right() {
        let t = |dims: &[usize]| Tensor::from_f32(dims, &vec![1.0; dims.iter().product()]);
        for (got, want) in [
            (vec![2, 3], vec![3, 2]),
            (vec![2], vec![3]),
            (vec![0], vec![0]),
        ] {
            let found = compare(&t(&got), &t(&want), TIGHT);
            assert_eq!(found, Difference::NONE, "{got:?}");
        }
        assert!(compare(&t(&[2]), &t(&[2]), TIGHT).ok);
    }

    #[test]
    fn the_measures_are_those_of_their_definitions() {
        let found = compare_values(&[3.0, 4.5], &[3.0, 4.0], TIGHT);
        assert_eq!((found.max_abs, found.rel), (Some(0.5), Some(0.125)));
        let cosine = (9.0 + 18.0) / (5.0 * (9f64 + 20.25).sqrt());
        assert!((found.cosine.unwrap() - cosine).abs() < 1e-15);
        assert_eq!(compare_values(&[1.0], &[-1.0], TIGHT).cosine, Some(-1.0));
        assert_eq!(compare_values(&[0.0], &[0.0], TIGHT).cosine, None);
    }
}
