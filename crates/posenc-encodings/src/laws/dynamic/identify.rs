//! Dynamic NTK from its numbers: frequencies of a base that grows with the length.

use super::{Dynamic, FACTS};
use crate::laws::identify::evidence::Samples;
use crate::laws::identify::found::{Identified, IdentifiedScaling};
use crate::laws::identify::{geometric, round};

/// Dynamic NTK, from the frequencies at several lengths, `(length,
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
        let row = geometric::fit(&samples).filter(|row| row.factor.is_none())?;
        Some((*length as f64, row.theta?, row.error))
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
    let is_compatible = |&(l, theta, _): &(f64, f64, f64)| {
        ((theta / base).powf(inverse) / growth(l) - 1.0).abs() <= slack
    };
    if !bases.iter().all(is_compatible) {
        return None;
    }
    let found = Dynamic {
        factor,
        max_position: length as usize,
    };
    let fit_error = bases.iter().map(|sample| sample.2).fold(0.0, f64::max);
    Some(Identified {
        theta: Some(base),
        scaling: Some(IdentifiedScaling::new(FACTS.word, &found).switched()),
        fit_error,
    })
}
