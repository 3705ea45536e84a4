//! Round numbers: people choose them, rounding errors do not.

use crate::round::to_digits;

/// The number with the fewest decimal digits that passes, and its digits;
/// `x` itself, with many digits, where none of up to `most` digits does.
pub(crate) fn roundest(x: f64, most: u32, passes: impl Fn(f64) -> bool) -> (f64, u32) {
    for digits in 1..=most {
        let rounded = to_digits(x, digits as usize);
        if passes(rounded) {
            return (rounded, digits);
        }
    }
    (x, 17)
}

/// Bits for a base θ of that many digits.
pub(crate) fn theta_bits(digits: u32, most: f64) -> f64 {
    f64::min(3.5 * f64::from(digits) + 3.0, most)
}

/// Bits for an extension s.
pub(crate) fn factor_bits(s: f64, digits: u32, most: f64) -> f64 {
    let bits = match digits {
        _ if s.log2().fract() == 0.0 => 3.0,
        1 => 4.0,
        _ => 3.5 * f64::from(digits) + 1.0,
    };
    f64::min(bits, most)
}

/// The roundest length from `low` to `high`: the smallest power of two, else
/// the first with the most binary zeros at its end.
pub(crate) fn length_in(low: usize, high: usize) -> usize {
    let power = low
        .max(1)
        .checked_next_power_of_two()
        .filter(|&power| power <= high);
    power.unwrap_or_else(|| {
        let zeros = (0..usize::BITS).rev();
        let multiple = |zeros: u32| low.div_ceil(1 << zeros).checked_mul(1 << zeros);
        zeros
            .filter_map(multiple)
            .find(|&n| n <= high && n > 0)
            .unwrap_or(low)
    })
}

/// Bits for a length known to be between `low` and `high`.
pub(crate) fn length_bits(low: usize, high: usize, most: f64) -> f64 {
    let chosen = length_in(low, high);
    if chosen.is_power_of_two() {
        return f64::min(4.5, most);
    }
    let odd = chosen >> chosen.trailing_zeros();
    let bits = match chosen as f64 {
        _ if odd <= 32 => (odd as f64).log2() + 5.5,
        length if to_digits(length, 2) == length => 10.0,
        // That a length is whole says little where its uncertainty is near 1.
        _ => most,
    };
    f64::min(bits, most)
}

/// The whole numbers around `at` that pass, both ends included, where those that
/// pass are consecutive.
pub(crate) fn range_around(at: f64, passes: impl Fn(f64) -> bool) -> Option<(usize, usize)> {
    const MOST: f64 = (1_u64 << 40) as f64;
    let seed = [at.round(), at.floor(), at.ceil()]
        .into_iter()
        .find(|&n| (1.0..=MOST).contains(&n) && passes(n))?;
    // Doubling steps outward, then halving back to the edge.
    let edge = |sign: f64| {
        let (mut inside, mut step) = (seed, 1.0);
        let within = |n: f64| (1.0..=MOST).contains(&n) && passes(n);
        while within(inside + sign * step) {
            inside += sign * step;
            step *= 2.0;
        }
        while step >= 1.0 {
            if within(inside + sign * step) {
                inside += sign * step;
            }
            step /= 2.0;
        }
        inside as usize
    };
    Some((edge(-1.0), edge(1.0)))
}
