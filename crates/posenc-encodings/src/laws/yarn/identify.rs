//! YaRN from its numbers: a ramp over whole pairs with the default betas, then
//! other betas and ends that are not whole pairs.

use std::f64::consts::TAU;

use serde::{Serialize, Serializer};

use super::ramp::{RampBounds, ends, magnitude, ramp_at};
use crate::laws::identify::evidence::Samples;
use crate::laws::identify::found::{Fit, Identified, IdentifiedScaling};
use crate::laws::identify::geometric::Candidates;
use crate::laws::identify::ramp::{Depth, Ratios};
use crate::laws::identify::round;
use crate::laws::rope::Rope;

/// The word of the law.
pub(super) const WORD: &str = "yarn";

/// YaRN as far as its numbers determine it.
#[derive(Debug, Clone, Serialize)]
struct Found {
    factor: f64,
    /// The roundest length of the range.
    original_length: Option<usize>,
    /// All lengths that give these numbers with the betas below, both ends included.
    original_length_range: Option<[usize; 2]>,
    /// Whether only one length does.
    exact: bool,
    /// 32 where the default explains the numbers, else unknown.
    beta_fast: Option<f64>,
    /// 1 where the default explains the numbers, else unknown.
    beta_slow: Option<f64>,
    /// Whether the ends of the ramp are whole pairs.
    #[serde(rename = "truncate", serialize_with = "is_truncated")]
    bounds: Option<RampBounds>,
    /// First and last pair of the ramp, where they are fixed.
    ramp: Option<[f64; 2]>,
}

fn is_truncated<S: Serializer>(bounds: &Option<RampBounds>, to: S) -> Result<S::Ok, S::Error> {
    bounds
        .map(|bounds| bounds == RampBounds::Truncated)
        .serialize(to)
}

const BETA_FAST: f64 = 32.0;
const BETA_SLOW: f64 = 1.0;

/// Bits against parameters that hardly any model has.
const RARE: f64 = 16.0;

/// Default betas, whole pairs.
pub(crate) fn usual(samples: &Samples, candidates: &Candidates) -> Vec<Fit> {
    let mut fits = Vec::new();
    for ratios in candidates
        .0
        .iter()
        .filter_map(|&theta| Ratios::new(samples, theta))
    {
        let ramps = default_ramps(&ratios);
        let choice = (ramps.len() as f64).log2();
        for [low, high] in ramps {
            let shape = shape(&ratios, low, high);
            let Some(depth) = ratios.solve(&shape) else {
                continue;
            };
            // One pair that is off makes no ramp, unless the factor on cos and sin is the usual one.
            let touched = shape.iter().filter(|&&c| c > 0.0).count();
            if touched < 2 && !has_usual_factor(samples, &depth) {
                continue;
            }
            let Some((first, last)) = lengths(&ratios, &shape) else {
                continue;
            };
            let found = Found {
                factor: depth.factor,
                original_length: Some(round::length_in(first, last)),
                original_length_range: Some([first, last]),
                exact: first == last,
                beta_fast: Some(BETA_FAST),
                beta_slow: Some(BETA_SLOW),
                bounds: Some(RampBounds::Truncated),
                ramp: Some([low, high]),
            };
            fits.push(fit(&ratios, &depth, found, choice + 3.0, 0.0));
        }
    }
    fits
}

/// Everything else that YaRN's parameters can give.
pub(crate) fn unusual(samples: &Samples, candidates: &Candidates) -> Vec<Fit> {
    let mut fits = Vec::new();
    for ratios in candidates
        .0
        .iter()
        .filter_map(|&theta| Ratios::new(samples, theta))
    {
        fits.extend(exact_bounds(&ratios));
        fits.extend(other_betas(&ratios));
        fits.extend(free_ramp(&ratios));
    }
    fits
}

/// Default betas and ends that are no whole pairs, with the usual factor on cos and sin, which tells
/// the factor of the interpolation once more.
pub(crate) fn unrounded(samples: &Samples, candidates: &Candidates) -> Vec<Fit> {
    let ratios = candidates.0.iter();
    let ratios = ratios.filter_map(|&theta| Ratios::new(samples, theta));
    let usual = |ratios: &Ratios<'_>| {
        let (depth, found) = unrounded_ramp(ratios)?;
        let is_told_twice = has_usual_factor(samples, &depth);
        is_told_twice.then(|| exact_fit(ratios, &depth, found))?
    };
    ratios.filter_map(|ratios| usual(&ratios)).collect()
}

/// `rarity`: bits that the form costs where the factor on cos and sin is not the usual one.
fn fit(ratios: &Ratios<'_>, depth: &Depth, found: Found, more: f64, rarity: f64) -> Fit {
    let samples = ratios.samples;
    // The usual factor on cos and sin is evidence of its own; none at all is
    // rare, though DeepSeek's configs give it.
    let bonus = if samples.is_unit_factor() {
        -8.0 - rarity
    } else if has_usual_factor(samples, depth) {
        samples.bits
    } else {
        -1.0 - rarity
    };
    let found = Identified {
        theta: Some(ratios.theta.value),
        scaling: Some(IdentifiedScaling::new(WORD, &found)),
        fit_error: depth.error,
    };
    Fit {
        found,
        cost: ratios.bits(depth) + more - bonus,
    }
}

/// Whether cos and sin carry `0.1 ln s + 1`, and that is not 1.
fn has_usual_factor(samples: &Samples, depth: &Depth) -> bool {
    samples.is_factor(magnitude(depth.factor, 1.0)) && !samples.is_unit_factor()
}

/// The ramp's share of interpolation at every pair.
fn shape(ratios: &Ratios<'_>, low: f64, high: f64) -> Vec<f64> {
    (0..ratios.ratio.len())
        .map(|i| ramp_at(i, low, high))
        .collect()
}

/// Pair that completes so many rotations within a length.
fn pair(ratios: &Ratios<'_>, rotations: f64, length: f64) -> f64 {
    let d = ratios.samples.dim as f64;
    d * (length / (rotations * TAU)).ln() / (2.0 * ratios.theta.value.ln())
}

/// Every ramp of the default betas, by length, without repetition.
fn default_ramps(ratios: &Ratios<'_>) -> Vec<[f64; 2]> {
    let pairs = ratios.ratio.len();
    let ends = |rotations: f64| {
        let length = move |k: usize| {
            rotations
                * TAU
                * ratios
                    .theta
                    .value
                    .powf(2.0 * k as f64 / ratios.samples.dim as f64)
        };
        (0..=2 * pairs).map(length)
    };
    let mut edges: Vec<f64> = ends(BETA_FAST).chain(ends(BETA_SLOW)).collect();
    edges.extend([1.0, 1e13]);
    edges.retain(|edge| (1.0..=1e13).contains(edge));
    edges.sort_by(f64::total_cmp);
    let mut ramps: Vec<[f64; 2]> = Vec::new();
    for edge in edges.windows(2) {
        let length = (edge[0] * edge[1]).sqrt();
        let ramp = whole_ramp(ratios, length);
        // Ramps beyond the last pair move none; neither do those of lengths
        // that are shorter than a rotation of the first.
        let moves = ramp[0] + 1.0 < pairs as f64 && ramp[0] <= ramp[1];
        if moves && ramps.last() != Some(&ramp) {
            ramps.push(ramp);
        }
    }
    ramps
}

fn whole_ramp(ratios: &Ratios<'_>, length: f64) -> [f64; 2] {
    let low = pair(ratios, BETA_FAST, length).floor().max(0.0);
    let high = pair(ratios, BETA_SLOW, length)
        .ceil()
        .min(ratios.samples.dim as f64 - 1.0);
    [low, high]
}

/// All lengths whose ramp has that shape with the default betas.
///
/// A longer length never interpolates a pair more, so they are consecutive.
fn lengths(ratios: &Ratios<'_>, shape: &[f64]) -> Option<(usize, usize)> {
    let rope = Rope {
        theta: ratios.theta.value,
        rotary_dim: ratios.samples.dim,
        head_dim: ratios.samples.dim,
    };
    let side = |length: usize| {
        let (low, high) = ends(&rope, length, [BETA_FAST, BETA_SLOW], RampBounds::Truncated);
        let off = |(i, &c): (usize, &f64)| ramp_at(i, low, high) - c;
        let worst = shape
            .iter()
            .enumerate()
            .map(off)
            .find(|off| off.abs() > 1e-9);
        worst.map_or(std::cmp::Ordering::Equal, |off| {
            if off > 0.0 {
                std::cmp::Ordering::Less
            } else {
                std::cmp::Ordering::Greater
            }
        })
    };
    // A shorter length would end the ramp before pair 0, a longer one start it
    // after its end; the formula then gives other shapes.
    let d = rope.rotary_dim as f64;
    let shortest = (TAU * rope.theta.powf(-2.0 / d)).floor() as usize;
    let longest = (BETA_FAST * TAU * rope.theta.powf(2.0 * (d - 1.0) / d)).min(1e12) as usize;
    let first_where = |reached: &dyn Fn(usize) -> bool| {
        let (mut below, mut at) = (shortest, longest.max(shortest + 1));
        while at - below > 1 {
            let middle = below + (at - below) / 2;
            if reached(middle) {
                at = middle
            } else {
                below = middle
            }
        }
        at
    };
    let first = first_where(&|n| side(n).is_ge());
    let after = first_where(&|n| side(n).is_gt());
    (first < after).then(|| (first, after - 1))
}

/// Default betas, ends as the formula gives them.
fn exact_bounds(ratios: &Ratios<'_>) -> Option<Fit> {
    let (depth, found) = unrounded_ramp(ratios)?;
    exact_fit(ratios, &depth, found)
}

/// The best ramp of default betas whose ends are not rounded.
fn unrounded_ramp(ratios: &Ratios<'_>) -> Option<(Depth, Found)> {
    let d = ratios.samples.dim as f64;
    let ends = |length: f64| {
        let low = pair(ratios, BETA_FAST, length).max(0.0);
        [low, pair(ratios, BETA_SLOW, length).min(d - 1.0)]
    };
    let shape = |length: f64| {
        let [low, high] = ends(length);
        shape(ratios, low, high)
    };
    let best = ratios.best_length(shape);
    let depth = ratios
        .solve(&shape(best.round()))
        .or_else(|| ratios.solve(&shape(best)))?;
    let passes = |n: f64| ratios.samples.fits(ratios.error(&shape(n), depth.factor));
    let (first, last) = round::range_around(best, passes)?;
    let length = round::length_in(first, last);
    let shape = shape(length as f64);
    let depth = Depth {
        error: ratios.error(&shape, depth.factor),
        ..depth
    };
    let found = Found {
        factor: depth.factor,
        original_length: Some(length),
        original_length_range: Some([first, last]),
        exact: first == last,
        beta_fast: Some(BETA_FAST),
        beta_slow: Some(BETA_SLOW),
        bounds: Some(RampBounds::Exact),
        ramp: Some(ends(length as f64)),
    };
    Some((depth, found))
}

fn exact_fit(ratios: &Ratios<'_>, depth: &Depth, found: Found) -> Option<Fit> {
    let [first, last] = found.original_length_range?;
    let [low, high] = found.ramp?;
    let shape = shape(ratios, low, high);
    let more = round::length_bits(first, last, ratios.samples.bits) + 5.0;
    // One pair on the ramp fits some length whatever it is.
    let on_ramp = shape.iter().filter(|&&c| c > 0.0 && c < 1.0).count();
    if on_ramp < 2 && more > ratios.samples.bits {
        return None;
    }
    Some(fit(ratios, depth, found, more, RARE))
}

fn unknown_length(factor: f64, bounds: Option<RampBounds>, ramp: Option<[f64; 2]>) -> Found {
    Found {
        factor,
        original_length: None,
        original_length_range: None,
        exact: false,
        beta_fast: None,
        beta_slow: None,
        bounds,
        ramp,
    }
}

/// A ramp over whole pairs that the default betas cannot give.
fn other_betas(ratios: &Ratios<'_>) -> Vec<Fit> {
    let Some(low) = ratios.unchanged().checked_sub(1) else {
        return Vec::new();
    };
    let choice = 2.0 * (ratios.samples.dim as f64).log2();
    let fits = (low + 1..ratios.samples.dim).filter_map(|high| {
        let (low, high) = (low as f64, high as f64);
        let depth = ratios.solve(&shape(ratios, low, high))?;
        let found = unknown_length(depth.factor, Some(RampBounds::Truncated), Some([low, high]));
        Some(fit(ratios, &depth, found, choice + 6.0, RARE))
    });
    fits.collect()
}

/// A straight ramp with ends anywhere: seen at three pairs or more, or at two
/// and ending where a pair rotates once in a round number of positions, as with
/// round betas and a round length.
fn free_ramp(ratios: &Ratios<'_>) -> Option<Fit> {
    let (start, end) = between(ratios)?;
    if end - start < 2 {
        return None;
    }
    let bottom = 1.0 - ratios.ratio[end];
    let share = |i: usize| (1.0 - ratios.ratio[i]) / bottom;
    // The line through the outer points; the inner ones have to fit it.
    let slope = (share(end - 1) - share(start)) / (end - 1 - start) as f64;
    let low = start as f64 - share(start) / slope;
    let high = low + 1.0 / slope;
    let depth = ratios.solve(&shape(ratios, low, high))?;
    let most = ratios.samples.bits;
    let positions = |at: f64| {
        let exact = TAU
            * ratios
                .theta
                .value
                .powf(2.0 * at / ratios.samples.dim as f64);
        let near = |x: f64| (x / exact - 1.0).abs() <= 8.0 * ratios.samples.tolerance;
        let power = exact.log2().round().exp2();
        let (_, digits) = round::roundest(exact, 3, near);
        let bits = if near(power) {
            4.5
        } else {
            3.5 * f64::from(digits) + 1.0
        };
        f64::min(bits, most)
    };
    let ends = positions(low) + positions(high);
    if end - start == 2 && ends > 24.0 {
        return None;
    }
    let found = unknown_length(depth.factor, Some(RampBounds::Exact), Some([low, high]));
    Some(fit(ratios, &depth, found, ends + 6.0, RARE))
}

/// The pairs `start..end` between the plain ones and the interpolated ones;
/// `end` is the first of at least two that share one ratio.
fn between(ratios: &Ratios<'_>) -> Option<(usize, usize)> {
    let start = ratios.unchanged();
    let bottom = *ratios.ratio.last()?;
    let same = |r: &&f64| (**r / bottom - 1.0).abs() <= 2.0 * ratios.samples.tolerance;
    let tail = ratios.ratio.iter().rev().take_while(same).count();
    let end = ratios.ratio.len() - tail;
    (tail >= 2 && start >= 1 && start <= end).then_some((start, end))
}
