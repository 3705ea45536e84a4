//! Numbers of few decimal digits.

/// `x` rounded to that many significant decimal digits.
pub fn to_digits(x: f64, digits: usize) -> f64 {
    // Printing and reading back rounds correctly at every magnitude.
    format!("{x:.*e}", digits.saturating_sub(1))
        .parse()
        .unwrap_or(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_count_from_the_first_that_is_not_zero() {
        assert_eq!(to_digits(0.001_234_56, 3), 0.001_23);
        assert_eq!(to_digits(123_456.0, 1), 100_000.0);
        assert_eq!(to_digits(-9.99, 2), -10.0);
        assert_eq!(to_digits(0.0, 4), 0.0);
        assert_eq!(to_digits(f64::INFINITY, 4), f64::INFINITY);
        assert!(to_digits(f64::NAN, 4).is_nan());
    }
}
