//! Llama 3 from its numbers. The frequency factors and the original length are
//! fixed only up to one common multiple, so the low factor is taken to be 1.

use std::f64::consts::TAU;

use serde::Serialize;

use crate::laws::identify::evidence::Samples;
use crate::laws::identify::found::{Fit, Identified, IdentifiedScaling};
use crate::laws::identify::geometric::Candidates;
use crate::laws::identify::ramp::{Depth, Ratios};
use crate::laws::identify::round;

/// The word of the law.
pub(super) const WORD: &str = "llama3";

/// What the frequencies fix: the low factor is taken to be 1, the high one is a multiple of it.
#[derive(Serialize)]
struct Found {
    factor: f64,
    low_freq_factor: f64,
    high_freq_factor: f64,
    /// The roundest length of the range.
    original_length: usize,
    /// All lengths that give these numbers, both ends included.
    original_length_range: [usize; 2],
    exact: bool,
}

/// The frequency factors 1 and 4 of every model seen.
pub(crate) fn usual(samples: &Samples, candidates: &Candidates) -> Vec<Fit> {
    fits(samples, candidates, |ratios| with_high(ratios, 4.0, 3.0))
}

/// Another ratio of the frequency factors, where the ramp shows it.
pub(crate) fn unusual(samples: &Samples, candidates: &Candidates) -> Vec<Fit> {
    fits(samples, candidates, |ratios| {
        let (high, digits) = round::roundest(high_factor(ratios)?, 3, |high| {
            with_high(ratios, high, 0.0).is_some()
        });
        let cost = if digits > 3 {
            ratios.samples.bits
        } else {
            3.5 * f64::from(digits)
        };
        with_high(ratios, high, cost + 4.0)
    })
}

fn fits(
    samples: &Samples,
    candidates: &Candidates,
    fit: impl Fn(&Ratios<'_>) -> Option<Fit>,
) -> Vec<Fit> {
    // Llama 3 leaves cos and sin alone.
    if !samples.is_unit_factor() {
        return Vec::new();
    }
    let ratios = candidates
        .0
        .iter()
        .filter_map(|&theta| Ratios::new(samples, theta));
    ratios.filter_map(|ratios| fit(&ratios)).collect()
}

/// Share of interpolation of every pair, for a low factor of 1.
fn shape(ratios: &Ratios<'_>, high: f64, length: f64) -> Vec<f64> {
    let share = |f: &f64| 1.0 - ((length * f / TAU - 1.0) / (high - 1.0)).clamp(0.0, 1.0);
    ratios.plain.iter().map(share).collect()
}

fn with_high(ratios: &Ratios<'_>, high: f64, more: f64) -> Option<Fit> {
    let samples = ratios.samples;
    let shape = |length: f64| shape(ratios, high, length);
    let best = ratios.best_length(shape);
    // Where the last pair is on the ramp, length and factor go together, and
    // the round ones are the likely ones.
    let powers = (6..=20).map(|power| f64::from(power).exp2());
    let tried = powers.chain([best.round(), best]).filter_map(|length| {
        let depth = ratios.solve(&shape(length))?;
        let passes = |n: f64| samples.fits(ratios.error(&shape(n), depth.factor));
        let (first, last) = round::range_around(length, passes)?;
        let length_bits = round::length_bits(first, last, samples.bits);
        // One pair on the ramp fits some length whatever it is.
        let on_ramp = shape(length)
            .iter()
            .filter(|&&c| c > 0.0 && c < 1.0)
            .count();
        if on_ramp < 2 && length_bits >= samples.bits {
            return None;
        }
        let cost = ratios.bits(&depth) + length_bits + more;
        Some((cost, depth, first, last))
    });
    let (cost, depth, first, last) = tried.min_by(|a, b| a.0.total_cmp(&b.0))?;
    let original_length = round::length_in(first, last);
    let error = ratios.error(&shape(original_length as f64), depth.factor);
    let Depth { factor, .. } = depth;
    let found = Found {
        factor,
        low_freq_factor: 1.0,
        high_freq_factor: high,
        original_length,
        original_length_range: [first, last],
        exact: first == last,
    };
    let theta = Some(ratios.theta.value);
    Some(Fit {
        found: Identified {
            theta,
            scaling: Some(IdentifiedScaling::new(WORD, &found)),
            fit_error: error,
        },
        cost,
    })
}

/// High over low factor from the line that the ramp is in the frequency:
/// `t = α·f - β` with `β = low/(high - low)`.
fn high_factor(ratios: &Ratios<'_>) -> Option<f64> {
    let bottom = *ratios.ratio.last()?;
    let start = ratios.unchanged();
    let slack = 2.0 * ratios.samples.tolerance;
    let inside = |&i: &usize| ratios.ratio[i] / bottom - 1.0 > slack;
    let end = start + (start..ratios.ratio.len()).take_while(inside).count();
    if end < start + 3 {
        return None;
    }
    let t = |i: usize| (ratios.ratio[i] - bottom) / (1.0 - bottom);
    let (a, b) = (start, end - 1);
    let alpha = (t(a) - t(b)) / (ratios.plain[a] - ratios.plain[b]);
    let beta = alpha * ratios.plain[a] - t(a);
    let high = 1.0 + 1.0 / beta;
    (high.is_finite() && high > 1.0).then_some(high)
}
