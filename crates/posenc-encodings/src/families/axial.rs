//! Rotary position embedding on a grid: some pairs of a head's features rotate by the row of a
//! patch, the others by its column; class and register tokens before the patches do not rotate.
//!
//! Patch (y, x) rotates pair i by `f_i · (y − y₀)` or `f_i · (x − x₀)`. In most models the
//! frequencies of an axis are geometric, `f_j = f_0 · θ^(−j/n)` for its n pairs; f_0 depends on
//! whether coordinates count patches (Pixtral, EVA) or run from −1 to 1 (DINOv3).
//! Sources: Heo et al., arXiv:2403.13298, section 3.2; Siméoni et al., arXiv:2508.10104, section
//! 3.2.

mod centred;

use ndarray::Array2;
use serde_json::json;

use super::rope::{LOOSE, PairRotations, layout};
use crate::encoding::Encoding;
use crate::layout::Layout;
use crate::params::Params;
use crate::round::to_digits;

pub use centred::Centred;

/// The least rotation from one patch to the next, in radians, that is told from rounding: sines near 0 are
/// stored precisely in every type.
const SLOWEST: f64 = 1e-6;

/// The largest share of its rotation along one axis by which a pair may seem to rotate along the other.
const OTHER: f64 = 0.05;

/// A rotation by rows and columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Axial {
    /// Rows and columns of the patches.
    pub grid: [usize; 2],
    /// Tokens before the patches that do not rotate.
    pub prefix: usize,
    /// For each pair its axis (0: rows, 1: columns) and the radians from one patch to the next,
    /// between −π and π.
    pub steps: Vec<(usize, f64)>,
    /// θ, where both axes have the same geometric frequencies.
    pub theta: Option<f64>,
    /// Pairs of features, as places in the head, in the order of `steps`.
    pub pairs: Vec<(usize, usize)>,
    /// The layout, where the pairs follow one.
    pub layout: Option<Layout>,
    /// The factor m on cos and sin.
    pub attention_factor: f64,
    /// The head's features.
    pub head_dim: usize,
}

impl Encoding for Axial {
    fn word(&self) -> &'static str {
        super::rope::FAMILY.word
    }

    fn params(&self) -> Params {
        let mut params = Params::new();
        let theta = self.theta.map(|t| to_digits(t, 5));
        params.insert("theta".into(), json!(theta));
        params.insert("head_dim".into(), json!(self.head_dim));
        params.insert("rotary_dim".into(), json!(2 * self.pairs.len()));
        params.insert("layout".into(), json!(self.layout));
        let factor = to_digits(self.attention_factor, 7);
        params.insert("attention_factor".into(), json!(factor));
        params.insert("grid".into(), json!(self.grid));
        params.insert("prefix".into(), json!(self.prefix));
        params.insert("scaling".into(), json!(null));
        params
    }
}

impl Axial {
    /// cos and sin of every pair, times m, in f64, for coordinates that start at `origin`: two
    /// tables `[token, pair]`.
    pub fn reference(&self, origin: [f64; 2]) -> (Array2<f64>, Array2<f64>) {
        let [rows, columns] = self.grid;
        let shape = (self.prefix + rows * columns, self.steps.len());
        let angle = |token: usize, pair: usize| {
            let Some(patch) = token.checked_sub(self.prefix) else {
                return 0.0;
            };
            let (axis, step) = self.steps[pair];
            let at = [patch / columns, patch % columns][axis];
            step * (at as f64 + origin[axis])
        };
        let table = |f: fn(f64) -> f64| {
            Array2::from_shape_fn(shape, |(t, i)| self.attention_factor * f(angle(t, i)))
        };
        (table(f64::cos), table(f64::sin))
    }

    /// Tries every grid that the tokens fill, the squarest first.
    pub fn identify(rotations: &PairRotations, head_dim: usize) -> Option<(Self, f64)> {
        let (length, pairs) = rotations.cos.dim();
        let is_fixed = |p: usize| {
            let change =
                |i: usize| rotations.sin[[p, i]].hypot(rotations.cos[[p, i]] - rotations.factor);
            (0..pairs).all(|i| change(i) < LOOSE * rotations.factor)
        };
        let fixed = (0..length).take_while(|p| is_fixed(*p)).count();
        // The first patch does not rotate either where coordinates start at 0.
        for prefix in [Some(fixed), fixed.checked_sub(1)].into_iter().flatten() {
            let patches = length - prefix;
            let mut grids: Vec<[usize; 2]> = (2..=patches / 2)
                .filter(|h| patches.is_multiple_of(*h))
                .map(|h| [h, patches / h])
                .collect();
            grids.sort_by_key(|[h, w]| h.abs_diff(*w));
            for grid in grids {
                if let Some((steps, fit)) = steps(rotations, prefix, grid) {
                    let axial = Self {
                        theta: theta(&steps),
                        grid,
                        prefix,
                        steps,
                        layout: layout(&rotations.pairs, head_dim),
                        pairs: rotations.pairs.clone(),
                        attention_factor: rotations.factor,
                        head_dim,
                    };
                    return Some((axial, fit.max(rotations.fit_error)));
                }
            }
        }
        None
    }
}

/// Axis and step of every pair, and the largest deviation; `None` unless each pair rotates along
/// one axis of the grid, and each axis rotates at least one pair.
fn steps(
    rotations: &PairRotations,
    prefix: usize,
    [rows, columns]: [usize; 2],
) -> Option<(Vec<(usize, f64)>, f64)> {
    let mut fit: f64 = 0.0;
    let mut steps = vec![];
    for pair in 0..rotations.pairs.len() {
        // cos and sin of the rotation from one patch to another.
        let between = |a: usize, b: usize| {
            let at = |p: usize| {
                (
                    rotations.cos[[prefix + p, pair]],
                    rotations.sin[[prefix + p, pair]],
                )
            };
            let ((c, s), (d, t)) = (at(a), at(b));
            let m = rotations.factor * rotations.factor;
            ((c * d + s * t) / m, (c * t - s * d) / m)
        };
        let mut along = |axis: usize| -> Option<f64> {
            let place = |y: usize, x: usize| y * columns + x;
            let (high, wide) = (
                rows - usize::from(axis == 0),
                columns - usize::from(axis == 1),
            );
            let next = |y: usize, x: usize| match axis {
                0 => place(y + 1, x),
                _ => place(y, x + 1),
            };
            let first = between(place(0, 0), next(0, 0));
            let mut sum = 0.0;
            for y in 0..high {
                for x in 0..wide {
                    let (c, s) = between(place(y, x), next(y, x));
                    let off = (c - first.0).hypot(s - first.1);
                    if off > LOOSE {
                        return None;
                    }
                    fit = fit.max(off);
                    // How far this is from the first, whatever the first is near to.
                    sum += (s * first.0 - c * first.1).atan2(c * first.0 + s * first.1);
                }
            }
            Some(first.1.atan2(first.0) + sum / (high * wide) as f64)
        };
        let (down, across) = (along(0)?, along(1)?);
        let (most, least) = (down.abs().max(across.abs()), down.abs().min(across.abs()));
        if most < SLOWEST || least > OTHER * most {
            return None;
        }
        steps.push(match down.abs() > across.abs() {
            true => (0, down),
            false => (1, across),
        });
    }
    let has = |axis: usize| steps.iter().any(|s| s.0 == axis);
    (has(0) && has(1)).then_some((steps, fit))
}

/// θ of frequencies that fall geometrically along both axes; read off the last ones, since
/// the first may exceed a full rotation. `None` where a pair rotates backwards.
fn theta(steps: &[(usize, f64)]) -> Option<f64> {
    let of = |axis: usize| {
        let own: Vec<f64> = steps.iter().filter(|s| s.0 == axis).map(|s| s.1).collect();
        let n = own.len();
        let ratio = *own.last()? / own.get(n.checked_sub(2)?)?;
        let circle = std::f64::consts::TAU;
        let fits = own.iter().rev().enumerate().all(|(back, f)| {
            let want = own[n - 1] * ratio.powi(-(i32::try_from(back).unwrap_or(i32::MAX)));
            let off = want - f;
            let off = off - circle * (off / circle).round();
            off.abs() < 1e-3 * want.max(LOOSE)
        });
        let falls = own[n - 1] > 0.0 && ratio < 1.0 && fits;
        falls.then(|| ratio.powi(-(i32::try_from(n).unwrap_or(i32::MAX))))
    };
    let (rows, columns) = (of(0)?, of(1)?);
    ((rows - columns).abs() < 1e-3 * rows).then_some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axial(steps: &[(usize, f64)]) -> Axial {
        let n = steps.len();
        let pairs: Vec<(usize, usize)> = (0..n).map(|i| (i, i + n)).collect();
        Axial {
            grid: [3, 4],
            prefix: 2,
            steps: steps.to_vec(),
            theta: None,
            layout: layout(&pairs, 2 * n),
            pairs,
            attention_factor: 1.0,
            head_dim: 2 * n,
        }
    }

    fn rotations(axial: &Axial, origin: [f64; 2]) -> PairRotations {
        let (cos, sin) = axial.reference(origin);
        PairRotations {
            pairs: axial.pairs.clone(),
            cos,
            sin,
            factor: axial.attention_factor,
            fit_error: 0.0,
        }
    }

    const STEPS: [(usize, f64); 4] = [(0, 1.0), (0, 0.1), (1, 1.0), (1, 0.1)];

    #[test]
    fn rows_columns_and_tokens_before_them_are_read() {
        for origin in [[0.5, 0.5], [0.0, 0.0], [-1.0, -1.5]] {
            let want = axial(&STEPS);
            let (got, fit) = Axial::identify(&rotations(&want, origin), 8).unwrap();
            assert_eq!((got.grid, got.prefix), ([3, 4], 2), "{origin:?}");
            assert!((got.theta.unwrap() - 100.0).abs() < 1e-6);
            assert!(fit < 1e-12);
        }
    }

    #[test]
    fn pairs_that_rotate_slowly_are_read() {
        let of = |axis: usize| {
            let frequencies = (0..16).map(|i| 1e4f64.powf(-f64::from(i) / 16.0));
            frequencies.map(move |f| (axis, f))
        };
        let slow = axial(&of(0).chain(of(1)).collect::<Vec<_>>());
        let mut stored = rotations(&slow, [0.0, 0.0]);
        let (got, _) = Axial::identify(&stored, 64).unwrap();
        assert_eq!((got.grid, got.prefix), ([3, 4], 2));
        assert!((got.theta.unwrap() - 1e4).abs() < 1e-2);
        for half in [false, true] {
            let round = |x: f64| match half {
                true => half::f16::from_f64(x).to_f64(),
                false => f64::from(x as f32),
            };
            stored.cos.mapv_inplace(round);
            stored.sin.mapv_inplace(round);
            let (got, _) = Axial::identify(&stored, 64).unwrap();
            assert_eq!(
                (got.grid, got.prefix),
                ([3, 4], 2),
                "half precision: {half}"
            );
        }
        // The slowest pair by the sum of row and column.
        let mut both = rotations(&slow, [0.0, 0.0]);
        for t in 2..14 {
            let angle = 1e-4 * ((t - 2) / 4 + (t - 2) % 4) as f64;
            both.cos[[t, 31]] = angle.cos();
            both.sin[[t, 31]] = angle.sin();
        }
        assert!(Axial::identify(&both, 64).is_none());
    }

    #[test]
    fn theta_is_unknown_where_a_frequency_is_off_by_one_percent() {
        let mut steps = STEPS.to_vec();
        steps.extend([(0, 0.01), (1, 0.01)]);
        let (plain, _) = Axial::identify(&rotations(&axial(&steps), [0.5; 2]), 12).unwrap();
        assert!((plain.theta.unwrap() - 1000.0).abs() < 1e-6);
        steps[0].1 *= 1.01;
        let (odd, _) = Axial::identify(&rotations(&axial(&steps), [0.5; 2]), 12).unwrap();
        assert_eq!(odd.theta, None);
    }

    #[test]
    fn theta_is_unknown_where_a_pair_rotates_backwards() {
        // More than half a rotation from patch to patch looks like a rotation backwards and is none.
        let of = |axis: usize| [4.0, 0.4, 0.04].map(|f| (axis, f));
        let steps = [of(0), of(1)].concat();
        let read = |steps: &[(usize, f64)]| {
            Axial::identify(&rotations(&axial(steps), [0.5; 2]), 12)
                .unwrap()
                .0
        };
        assert!((read(&steps).theta.unwrap() - 1000.0).abs() < 1e-6);
        for pair in 0..steps.len() {
            let mut flipped = steps.clone();
            flipped[pair].1 *= -1.0;
            assert_eq!(read(&flipped).theta, None, "{pair}");
        }
        let all: Vec<(usize, f64)> = steps.iter().map(|(a, f)| (*a, -f)).collect();
        assert_eq!(read(&all).theta, None);
    }

    #[test]
    fn what_is_no_grid_is_refused() {
        let one_axis = axial(&[(1, 1.0), (1, 0.1)]);
        let both = |rotations: &mut PairRotations| {
            // The first pair rotates by the sum of row and column.
            for t in 2..14 {
                let (y, x) = ((t - 2) / 4, (t - 2) % 4);
                let angle = 0.7 * (y + x) as f64 + 0.3;
                rotations.cos[[t, 0]] = angle.cos();
                rotations.sin[[t, 0]] = angle.sin();
            }
        };
        let one_patch = |rotations: &mut PairRotations| rotations.sin[[9, 2]] *= -1.0;
        let squared = |rotations: &mut PairRotations| {
            for t in 2..14 {
                let angle = 0.2 * (((t - 2) % 4) as f64).powi(2) + 0.3;
                rotations.cos[[t, 3]] = angle.cos();
                rotations.sin[[t, 3]] = angle.sin();
            }
        };
        let plain = rotations(&axial(&STEPS), [0.5; 2]);
        let bent = |f: &dyn Fn(&mut PairRotations)| {
            let mut rotations = plain.clone();
            f(&mut rotations);
            rotations
        };
        let mut line = plain.clone();
        for t in 0..14 {
            for (i, (_, f)) in STEPS.iter().enumerate() {
                line.cos[[t, i]] = (f * t as f64).cos();
                line.sin[[t, i]] = (f * t as f64).sin();
            }
        }
        for (name, rotations) in [
            ("one axis", rotations(&one_axis, [0.5; 2])),
            ("row and column at once", bent(&both)),
            ("one patch rotated backwards", bent(&one_patch)),
            ("not in proportion", bent(&squared)),
            ("a line", line),
        ] {
            assert!(Axial::identify(&rotations, 8).is_none(), "{name}");
        }
    }
}
