//! The frequencies of a scaling as rows to print or plot.

use std::f64::consts::TAU;

use super::{Rope, Scaling, plain};

/// One rotated pair.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// Index i of the pair.
    pub pair: usize,
    /// Frequency before the scaling, radians per position.
    pub plain: f64,
    /// Frequency, radians per position.
    pub inv_freq: f64,
    /// Positions per full rotation, `2π / inv_freq`; infinite for a pair that does not rotate.
    pub wavelength: f64,
    /// Frequency as a multiple of the plain one: 1 unchanged, `1/s` interpolated.
    pub ratio: f64,
    /// Full rotations within the original length at the plain frequency, which is what
    /// YaRN and Llama 3 sort the pairs by. Absent without an original length.
    pub rotations: Option<f64>,
    /// Full rotations within `length` at the scaled frequency.
    pub rotations_at_length: f64,
    /// The factor m on cos and sin, the same in every row.
    pub attention_factor: f64,
}

/// One [`Row`] per pair, at a runtime length (largest position plus one).
///
/// Only [`Row::rotations`] depends on `original_length`; where it is absent the
/// scaling's own is taken.
pub fn rows(
    scaling: &Scaling,
    rope: &Rope,
    length: usize,
    original_length: Option<usize>,
) -> Vec<Row> {
    let scaled = scaling.frequencies(rope, length);
    // Proportional frequencies are those of the whole head.
    let plain = plain::inv_freq(rope.theta, 2 * scaled.inv_freq.len());
    let original = original_length.or(scaling.original_length());
    let row = |(pair, (&inv_freq, plain)): (usize, (&f64, f64))| Row {
        pair,
        plain,
        inv_freq,
        wavelength: TAU / inv_freq,
        ratio: inv_freq / plain,
        rotations: original.map(|n| n as f64 * plain / TAU),
        rotations_at_length: length as f64 * inv_freq / TAU,
        attention_factor: scaled.attention_factor,
    };
    scaled
        .inv_freq
        .iter()
        .zip(plain)
        .enumerate()
        .map(row)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::{Llama3, Proportional};

    #[test]
    fn llama3_sorts_pairs_by_their_rotations_within_the_original_length() {
        let rope = Rope::new(500_000.0, 128, 128).unwrap();
        let scaling = Scaling::Llama3(Llama3::new(8.0, 1.0, 4.0, 8192).unwrap());
        let rows = rows(&scaling, &rope, 131_072, None);
        assert_eq!(rows.len(), 64);
        for row in rows {
            let rotations = row.rotations.unwrap();
            let want = match rotations {
                t if t > 4.0 => 1.0..=1.0,
                t if t < 1.0 => 0.125..=0.125,
                _ => 0.125..=1.0,
            };
            let (least, most) = (want.start() - 1e-12, want.end() + 1e-12);
            assert!(
                (least..=most).contains(&row.ratio),
                "pair {}: {}",
                row.pair,
                row.ratio
            );
        }
    }

    #[test]
    fn a_resting_pair_has_an_endless_wavelength() {
        let rope = Rope::new(10_000.0, 16, 16).unwrap();
        let scaling = Scaling::Proportional(Proportional::new(0.25, 1.0).unwrap());
        let rows = rows(&scaling, &rope, 64, None);
        assert_eq!(
            rows.iter()
                .filter(|row| row.wavelength.is_infinite())
                .count(),
            6
        );
        assert!(rows.iter().all(|row| row.rotations.is_none()));
    }
}
