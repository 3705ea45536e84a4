//! Numbers as text.

pub(crate) use posenc_encodings::describe::compact;
use posenc_encodings::describe::infinite;
use posenc_encodings::round::to_digits;

/// Two significant digits, for errors.
pub(crate) fn rough(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return compact(number);
    }
    let rounded = to_digits(number, 2);
    if (1e-2..1e3).contains(&rounded.abs()) {
        rounded.to_string()
    } else {
        format!("{rounded:e}")
    }
}

/// This many digits after the point.
pub(crate) fn fixed(number: f64, digits: usize) -> String {
    if number.is_finite() {
        format!("{number:.digits$}")
    } else {
        infinite(number)
    }
}

/// With commas between the thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Whole numbers as ranges: `0-5, 7`.
pub(crate) fn ranges(numbers: &[usize]) -> String {
    posenc_onnx::request::Layers::of(numbers.iter().copied()).to_string()
}

/// `1 node`, `2 nodes`.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_readable() {
        let cases = [
            (0.0, "0"),
            (10_000.0, "10000"),
            (5e5, "500000"),
            (1.5e8, "1.5e8"),
            (1.0 / 3.0, "0.33333"),
            (1.138629, "1.1386"),
            (1.234567e-5, "1.2346e-5"),
            (-0.25, "-0.25"),
            (f64::INFINITY, "∞"),
            (f64::NEG_INFINITY, "-∞"),
            (f64::NAN, "–"),
        ];
        for (number, want) in cases {
            assert_eq!(compact(number), want);
        }
        assert_eq!(rough(1.2345e-7), "1.2e-7");
        assert_eq!(rough(0.0672), "0.067");
        assert_eq!(rough(0.0), "0");
        assert_eq!(fixed(2.0 / 3.0, 2), "0.67");
        assert_eq!(fixed(f64::NAN, 2), "–");
    }

    #[test]
    fn thousands_are_separated() {
        for (number, want) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), want);
        }
        assert_eq!(counted(1, "node"), "1 node");
        assert_eq!(counted(0, "node"), "0 nodes");
        assert_eq!(ranges(&[0, 1, 2, 7]), "0-2,7");
    }
}
