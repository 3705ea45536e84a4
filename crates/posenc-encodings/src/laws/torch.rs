//! The f32 operations of torch on the CPU, where they are not the obvious ones.

/// `base ** x`, rounded once from f64: equal to a power function in f32 whose
/// error stays below one half unit in the last place, as glibc's does but for
/// rare cases.
pub(crate) fn pow(base: f32, x: f32) -> f32 {
    f64::from(base).powf(f64::from(x)) as f32
}

/// `number / tensor`: torch takes the reciprocal and multiplies.
pub(crate) fn div_of_scalar(number: f32, x: f32) -> f32 {
    (1.0 / x) * number
}

/// `arange(0, dim, 2).float() / dim`, one exponent per pair.
pub(crate) fn exponents(dim: usize) -> impl Iterator<Item = f32> {
    (0..dim / 2).map(move |i| (2 * i) as f32 / dim as f32)
}
