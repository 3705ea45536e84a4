//! Scalings that a graph switches while it runs: two lists of frequencies, or
//! one list per length.

use super::evidence::Samples;
use super::family::{Identified, IdentifiedScaling};
use super::{geometric, round};

/// Bases that models with searched divisors have.
const BASES: [f64; 8] = [1e4, 1e5, 2.5e5, 5e5, 1e6, 2e6, 5e6, 1e7];

/// A base under which every frequency is a plain one over a short decimal
/// number, as published lists of divisors are; absent where chance would do.
pub(super) fn theta_of_decimals(samples: &Samples) -> Option<f64> {
    const MOST: f64 = 1e4;
    let explains = |&theta: &f64| {
        let mut bits = 0.0;
        for (i, f) in samples.f.iter().enumerate() {
            let divisor = samples.plain(theta, i) / f;
            let nearest = (divisor * MOST).round() / MOST;
            if !(nearest > 0.0 && (divisor / nearest - 1.0).abs() <= samples.tolerance) {
                return false;
            }
            // How unlikely that is for a number that came from elsewhere.
            bits += -(2.0 * divisor * samples.tolerance * MOST).log2().min(0.0);
        }
        bits >= 12.0 + 3.0
    };
    BASES.into_iter().find(explains)
}

/// Tells the family of two lists of frequencies of which a graph takes `short`
/// up to `original_length` and `long` above it: LongRoPE.
///
/// The divisors need θ, which the lists show where one of them is plain or all
/// divisors are short decimals, and which `theta` gives otherwise.
pub fn identify_lists(
    short: &[f64],
    long: &[f64],
    original_length: usize,
    theta: Option<f64>,
    tolerance: f64,
) -> Identified {
    let dim = 2 * short.len();
    let samples = |list: &[f64]| Samples::new(list, 1.0, dim, tolerance);
    let (Some(a), Some(b)) = (samples(short), samples(long)) else {
        return Identified::custom(short, None);
    };
    if a.pairs() != b.pairs() {
        return Identified::custom(short, None);
    }
    let plain = |samples: &Samples| {
        let fit = geometric::fit(samples)?;
        fit.found
            .scaling
            .is_none()
            .then_some(fit.found.theta)
            .flatten()
    };
    let decimals = || {
        let found = theta_of_decimals(&a)?;
        (theta_of_decimals(&b) == Some(found)).then_some(found)
    };
    let theta = theta
        .or_else(|| plain(&a))
        .or_else(|| plain(&b))
        .or_else(decimals);
    let divisors = |samples: &Samples| {
        let theta = theta?;
        let divisor = |(i, f): (usize, &f64)| {
            let exact = samples.plain(theta, i) / f;
            let near = |x: f64| (x / exact - 1.0).abs() <= samples.tolerance;
            round::roundest(exact, 6, near).0
        };
        Some(samples.f.iter().enumerate().map(divisor).collect())
    };
    let scaling = IdentifiedScaling::LongRope {
        short_factor: divisors(&a),
        long_factor: divisors(&b),
        original_length,
    };
    Identified {
        theta,
        scaling: Some(scaling),
        fit_error: 0.0,
    }
}

/// Tells dynamic NTK from the frequencies at several lengths, `(length,
/// inv_freq)`: plain at each, with a base that grows as `(s·L/L_max - (s-1))`
/// to the power `d/(d-2)` beyond `L_max`.
///
/// Needs two samples within `L_max` and two beyond, at lengths in rising order:
/// from beyond alone, any L_max would do. Nothing where a sample is not plain
/// or the growth is another.
pub fn identify_growth(
    samples: &[(usize, Vec<f64>)],
    rotary_dim: usize,
    tolerance: f64,
) -> Option<Identified> {
    let theta = |(length, inv_freq): &(usize, Vec<f64>)| {
        let full = inv_freq.len() == rotary_dim / 2 && inv_freq.len() > 1;
        let samples = Samples::new(inv_freq, 1.0, rotary_dim, tolerance).filter(|_| full)?;
        let fit = geometric::fit(&samples)?;
        let found = fit.found.scaling.is_none().then_some(fit.found)?;
        Some((*length as f64, found.theta?, found.fit_error))
    };
    let bases: Vec<(f64, f64, f64)> = samples.iter().map(theta).collect::<Option<_>>()?;
    let (_, base, _) = *bases.first()?;
    let inverse = (rotary_dim as f64 - 2.0) / rotary_dim as f64;
    // What θ is uncertain by, and a little more.
    let slack = 8.0 * tolerance * rotary_dim as f64;
    let grown = |&(_, theta, _): &(f64, f64, f64)| theta / base - 1.0 > slack;
    let beyond: Vec<(f64, f64)> = bases
        .iter()
        .filter(|sample| grown(sample))
        .map(|&(length, theta, _)| (length, (theta / base).powf(inverse)))
        .collect();
    let (&(a, at_a), &(b, at_b)) = (beyond.first()?, beyond.last()?);
    if beyond.len() + 2 > bases.len() || a == b {
        return None;
    }
    let slope = (at_b - at_a) / (b - a);
    let factor = 1.0 - (at_a - slope * a);
    let max = factor / slope;
    let (factor, _) = round::roundest(factor, 4, |s| (s / factor - 1.0).abs() <= slack);
    let length = max.round();
    if !(factor >= 1.0 && length >= 1.0 && (max / length - 1.0).abs() <= slack) {
        return None;
    }
    let growth = |l: f64| {
        if l <= length {
            1.0
        } else {
            factor * l / length - (factor - 1.0)
        }
    };
    let agrees = |&(l, theta, _): &(f64, f64, f64)| {
        ((theta / base).powf(inverse) / growth(l) - 1.0).abs() <= slack
    };
    if !bases.iter().all(agrees) {
        return None;
    }
    let original_length = length as usize;
    let scaling = IdentifiedScaling::Dynamic {
        factor,
        original_length,
    };
    let fit_error = bases.iter().map(|sample| sample.2).fold(0.0, f64::max);
    Some(Identified {
        theta: Some(base),
        scaling: Some(scaling),
        fit_error,
    })
}
