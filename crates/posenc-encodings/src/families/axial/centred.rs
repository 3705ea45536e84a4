//! Rotations by the centres of patches, which are places from −1 to 1 along each side whatever their number.
//!
//! Patch `at` of `side` is at `(2·at + 1)/side − 1`, and pair j of the n of an axis rotates by that × `2π·θ^(−j/n)`, as
//! in DINOv3 (`get_patches_center_coordinates` and `DINOv3ViTRopePositionEmbedding` of transformers). Each side is
//! normalized by its own number of patches, as `transformers` does; a square grid does not show whether the longer
//! one normalizes both.

use std::f64::consts::TAU;

use super::Axial;
use crate::families::rope::LOOSE;
use crate::round::to_digits;

/// Digits of θ that are tried, the fewest first.
const DIGITS: std::ops::RangeInclusive<usize> = 1..=6;

/// The law of a rotation.
#[derive(Clone, Debug, PartialEq)]
pub struct Centred {
    /// θ, the base of the frequencies.
    pub theta: f64,
    /// For each pair its axis (0: rows, 1: columns), and its place j among the pairs of this axis.
    pairs: Vec<(usize, usize)>,
    /// Pairs of each axis.
    count: [usize; 2],
}

impl Centred {
    /// The laws that a rotation may follow, θ of the fewest digits first; none where it steps otherwise from patch
    /// to patch. Where its angles are 0 is not looked at.
    pub fn candidates(axial: &Axial) -> Vec<Self> {
        let mut count = [0; 2];
        let mut pairs = vec![];
        for (axis, _) in &axial.steps {
            pairs.push((*axis, count[*axis]));
            count[*axis] += 1;
        }
        let is_even = count[0] == count[1] && count[0] > 0;
        let Some(theta) = axial.theta.filter(|_| is_even) else {
            return vec![];
        };
        let own = |theta: f64| Self {
            theta,
            pairs: pairs.clone(),
            count,
        };
        let first = own(theta);
        // The pair whose angle shows θ best is where its logarithm weighs most against the rounding of steps.
        let best = (count[0] as f64 / theta.ln()).round().max(1.0) as usize;
        let best = best.min(count[0] - 1);
        let shown = first.pairs.iter().position(|pair| *pair == (0, best));
        let refined = shown.filter(|_| best > 0).and_then(|pair| {
            let want = first.step(pair, axial.grid);
            let step = want + turned(axial.steps[pair].1 - want);
            let frequency = step * axial.grid[0] as f64 / 2.0;
            let theta = (TAU / frequency).powf(count[0] as f64 / best as f64);
            theta.is_finite().then_some(theta)
        });
        let theta = refined.unwrap_or(theta);
        let mut all: Vec<Self> = vec![];
        let rounded = DIGITS.map(|digits| to_digits(theta, digits));
        for theta in rounded.chain([theta]) {
            let law = own(theta);
            if !all.contains(&law) && law.steps_as(axial) {
                all.push(law);
            }
        }
        all
    }

    /// The frequency of a pair, in radians from the centre of an image to its edge.
    pub fn frequency(&self, pair: usize) -> f64 {
        let (axis, place) = self.pairs[pair];
        TAU * self.theta.powf(-(place as f64) / self.count[axis] as f64)
    }

    /// The radians by which a pair rotates at the patch `[row, column]`, from its first feature to its second; below 0
    /// before the centre.
    pub fn angle(&self, pair: usize, patch: [usize; 2], grid: [usize; 2]) -> f64 {
        let (axis, _) = self.pairs[pair];
        let place = (2 * patch[axis] + 1) as f64 / grid[axis] as f64 - 1.0;
        self.frequency(pair) * place
    }

    /// The radians from one patch to the next, whole turns included.
    fn step(&self, pair: usize, grid: [usize; 2]) -> f64 {
        let (axis, _) = self.pairs[pair];
        self.frequency(pair) * 2.0 / grid[axis] as f64
    }

    /// The rotation on another grid, with whole turns in its steps.
    pub fn on(&self, axial: &Axial, grid: [usize; 2]) -> Axial {
        let step = |pair: usize| (self.pairs[pair].0, self.step(pair, grid));
        Axial {
            grid,
            steps: (0..self.pairs.len()).map(step).collect(),
            ..axial.clone()
        }
    }

    /// Where coordinates start that count patches and are 0 at the centre of a grid.
    pub fn origin(grid: [usize; 2]) -> [f64; 2] {
        grid.map(|side| (1.0 - side as f64) / 2.0)
    }

    /// Whether a rotation steps by this law from one patch to the next, but for whole turns.
    pub fn steps_as(&self, axial: &Axial) -> bool {
        let near = |(pair, (axis, step)): (usize, &(usize, f64))| {
            let off = turned(self.step(pair, axial.grid) - step);
            self.pairs.get(pair).map(|own| own.0) == Some(*axis) && off.abs() < LOOSE
        };
        axial.steps.len() == self.pairs.len() && axial.steps.iter().enumerate().all(near)
    }
}

/// An angle without whole turns.
fn turned(angle: f64) -> f64 {
    angle - TAU * (angle / TAU).round()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::rope::PairRotations;

    /// A rotation of this law on a grid, as it is read.
    fn read(theta: f64, grid: [usize; 2], first: f64, origin: Option<[f64; 2]>) -> Axial {
        let n = 3;
        let mut axial = Axial {
            grid,
            prefix: 2,
            steps: vec![],
            theta: None,
            pairs: (0..2 * n).map(|i| (i, i + 2 * n)).collect(),
            layout: None,
            attention_factor: 1.0,
            head_dim: 4 * n,
        };
        for axis in [0, 1] {
            let step = |j: usize| first * theta.powf(-(j as f64) / n as f64) * 2.0;
            let own = (0..n).map(|j| (axis, step(j) / grid[axis] as f64));
            axial.steps.extend(own);
        }
        let (cos, sin) = axial.reference(origin.unwrap_or(Centred::origin(grid)));
        let stored = |table: ndarray::Array2<f64>| table.mapv(|v| f64::from(v as f32));
        let rotations = PairRotations {
            pairs: axial.pairs.clone(),
            cos: stored(cos),
            sin: stored(sin),
            factor: 1.0,
            fit_error: 0.0,
        };
        Axial::identify(&rotations, 4 * n).expect("a grid").0
    }

    #[test]
    fn centres_between_the_edges_are_read_and_made_for_other_grids() {
        for theta in [100.0, 130.0, 10_000.0] {
            for grid in [[4, 4], [3, 5], [14, 14], [37, 20]] {
                let own = read(theta, grid, TAU, None);
                let laws = Centred::candidates(&own);
                assert!(
                    laws.iter().any(|law| law.theta == theta),
                    "{theta} {grid:?}"
                );
                let law = laws.iter().find(|law| law.theta == theta).unwrap();
                // The centre of the last row of 8, by the formula: 2π·(7.5/8·2 − 1).
                let angle = law.angle(0, [7, 0], [8, 5]);
                assert!((angle - TAU * 0.875).abs() < 1e-12, "{angle}");
                let other = read(theta, [6, 9], TAU, None);
                assert!(law.steps_as(&other));
                assert!(law.steps_as(&law.on(&own, [6, 9])));
                assert!(!law.steps_as(&read(theta, [6, 9], 2.5, None)), "control");
            }
        }
    }

    #[test]
    fn places_that_are_counted_are_no_centres_between_edges() {
        // One radian from a patch to the next, and centres whose first frequency is another.
        for first in [2.0, 7.0, TAU * 14.0 / 13.0] {
            let own = read(100.0, [14, 14], first, None);
            assert_eq!(Centred::candidates(&own), [], "{first}");
        }
        let mut odd = read(100.0, [14, 14], TAU, None);
        assert!(!Centred::candidates(&odd).is_empty());
        odd.steps[4].1 *= 1.1;
        assert_eq!(Centred::candidates(&odd), []);
        odd.theta = None;
        assert_eq!(Centred::candidates(&odd), []);
    }
}
