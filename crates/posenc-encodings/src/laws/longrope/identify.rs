//! LongRoPE from its numbers: two lists of frequencies between which a graph
//! switches while it runs.

use serde::Serialize;

use crate::laws::identify::evidence::Samples;
use crate::laws::identify::found::{Identified, IdentifiedScaling};
use crate::laws::identify::{geometric, round};

/// The word of the law.
pub(super) const WORD: &str = "longrope";

/// What the frequencies fix.
#[derive(Serialize)]
struct Found {
    /// Divisors up to the original length, `[pairs]`; absent where θ is unknown.
    short_factor: Option<Vec<f64>>,
    /// Divisors above it, `[pairs]`; absent where θ is unknown.
    long_factor: Option<Vec<f64>>,
    /// Length above which the long list is used.
    original_length: usize,
}

/// Bases that models with searched divisors have.
const BASES: [f64; 8] = [1e4, 1e5, 2.5e5, 5e5, 1e6, 2e6, 5e6, 1e7];

/// A base under which every frequency is a plain one over a short decimal
/// number, as published lists of divisors are; absent where chance would do.
pub(crate) fn theta_of_decimals(samples: &Samples) -> Option<f64> {
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

/// LongRoPE, from two lists of frequencies of which a graph takes `short` up to
/// `original_length` and `long` above it.
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
        let row = geometric::fit(samples)?;
        row.theta.filter(|_| row.factor.is_none())
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
    let found = Found {
        short_factor: divisors(&a),
        long_factor: divisors(&b),
        original_length,
    };
    Identified {
        theta,
        scaling: Some(IdentifiedScaling::new(WORD, &found).switched()),
        fit_error: 0.0,
    }
}
