//! Differences in units in the last place.

use posenc_ir::DType;

use crate::report::Ulp;

/// The exponent of the smallest normal number of a type.
fn least_exponent(dtype: DType) -> i32 {
    match dtype {
        DType::F16 => -14,
        DType::F64 => f64::MIN_EXP - 1,
        _ => f32::MIN_EXP - 1,
    }
}

/// The differences of two outputs of this type, over elements that are numbers in both. A unit is the distance of
/// what is wanted to the next larger magnitude; below the smallest normal number, that of this number. `None` for
/// types without a last place, and where no element is a number.
pub(super) fn ulp(got: &[f64], want: &[f64], dtype: DType) -> Option<Ulp> {
    let epsilon = dtype.epsilon()?;
    let least = least_exponent(dtype);
    let unit = |x: f64| {
        let exponent = if x == 0.0 { least } else { exponent(x) };
        f64::powi(2.0, exponent.max(least)) * epsilon
    };
    let pairs = got.iter().zip(want);
    let finite = pairs.filter(|(g, w)| g.is_finite() && w.is_finite());
    let units = finite.map(|(g, w)| match g == w {
        true => 0.0,
        false => (g - w).abs() / unit(*w),
    });
    let mut units: Vec<f64> = units.collect();
    let last = units.len().checked_sub(1)?;
    let mut of = |share: f64| {
        let at = (share * last as f64).ceil() as usize;
        *units.select_nth_unstable_by(at, f64::total_cmp).1
    };
    Some(Ulp {
        median: of(0.5),
        p99: of(0.99),
        max: of(1.0),
    })
}

/// The largest power of two that is not above the magnitude of a number other than 0.
fn exponent(x: f64) -> i32 {
    let estimate = x.abs().log2().floor() as i32;
    // The logarithm of a number just below a power of two may be rounded up to it.
    if f64::powi(2.0, estimate) > x.abs() {
        estimate - 1
    } else {
        estimate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_unit_apart() {
        let next = |x: f32| f64::from(f32::from_bits(x.to_bits() + 1));
        for x in [1.0_f32, 1.5, 3.999, 1e-30, 6.5e20, f32::MIN_POSITIVE] {
            let found = ulp(&[next(x)], &[f64::from(x)], DType::F32).unwrap();
            assert!((found.max - 1.0).abs() < 1e-6, "{x}: {found:?}");
        }
        // Just below a power of two, a unit is half of that above it.
        let below = f64::from(f32::from_bits(2.0_f32.to_bits() - 1));
        let found = ulp(&[2.0], &[below], DType::F32).unwrap();
        assert!((found.max - 1.0).abs() < 1e-6, "{found:?}");
        let found = ulp(&[1.0 + 1.0 / 1024.0], &[1.0], DType::F16).unwrap();
        assert_eq!(found.max, 1.0);
        let found = ulp(&[1.0 + 1.0 / 128.0], &[1.0], DType::BF16).unwrap();
        assert_eq!(found.max, 1.0);
    }

    #[test]
    fn quantiles_are_those_of_their_definition() {
        let want = vec![1.0; 101];
        let got: Vec<f64> = (0..101).map(|i| 1.0 + f64::from(i) / 1024.0).collect();
        let found = ulp(&got, &want, DType::F16).unwrap();
        assert_eq!((found.median, found.p99, found.max), (50.0, 99.0, 100.0));
        // The order of elements does not matter.
        let turned: Vec<f64> = got.iter().rev().copied().collect();
        assert_eq!(ulp(&turned, &want, DType::F16), Some(found));
    }

    #[test]
    fn there_are_no_units_without_numbers_or_without_fractions() {
        assert_eq!(ulp(&[], &[], DType::F32), None);
        assert_eq!(ulp(&[f64::NAN], &[1.0], DType::F32), None);
        assert_eq!(ulp(&[1.0], &[f64::INFINITY], DType::F32), None);
        assert_eq!(ulp(&[1.0], &[2.0], DType::I64), None);
        let found = ulp(&[f64::NAN, 0.0], &[1.0, 0.0], DType::F32);
        assert_eq!(found, Some(Ulp::default()));
    }
}
