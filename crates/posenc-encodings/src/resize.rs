//! Tables with more or fewer rows: every new row is a weighted sum of old ones.
//!
//! Sources: `linear` and `cubic` are the interpolations of `torch.nn.functional.interpolate` along
//! rows, the cubic one with a = −0.75 (Keys, 10.1109/TASSP.1981.1163711, section II); `tile` is how
//! Beltagy et al., arXiv:2004.05150, section 5, begin a longer table; `hierarchical` is the
//! decomposition of Su, kexue.fm/archives/7947, with α = 0.4.

use ndarray::{Array1, Array2, ArrayView2};

use crate::words;

words! {
    /// How the rows of a longer or shorter table follow from those of a table.
    "resizing" Resizing {
        /// Interpolated between two rows.
        Linear = "linear",
        /// Interpolated between four rows.
        Cubic = "cubic",
        /// Repeated from the first row on.
        Tile = "tile",
        /// Composed of two rows, one for the tens and one for the units as it were.
        Hierarchical = "hierarchical",
        /// Cut off.
        Truncate = "truncate",
    }
}

words! {
    /// Which points of two grids coincide.
    "corners" Corners {
        /// The edges of the outermost cells.
        HalfPixel = "half-pixel",
        /// The centers of the outermost cells.
        Aligned = "aligned",
    } default HalfPixel
}

/// The parameter of the cubic kernel of PyTorch without antialiasing.
const CUBIC: f64 = -0.75;

/// Su's α: the share of the row for the tens.
const ALPHA: f64 = 0.4;

/// Old rows with their weights.
pub type Weights = Vec<(usize, f64)>;

/// Why a table cannot have so many rows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResizeError {
    /// There is nothing to start from, or nothing to make.
    #[error("a table without rows cannot be resized")]
    Empty,
    /// Only fewer rows can be cut off.
    #[error("a table of {old} rows cannot be cut off to {new}")]
    NotShorter {
        /// Rows of the table.
        old: usize,
        /// Rows asked for.
        new: usize,
    },
    /// Repeating and composing make more rows, not fewer.
    #[error(
        "{by} makes a table longer, and {new} rows are fewer than {old}; cut it off with truncate"
    )]
    NotLonger {
        /// How.
        by: Resizing,
        /// Rows of the table.
        old: usize,
        /// Rows asked for.
        new: usize,
    },
    /// Pairs of rows are too few.
    #[error("{old} rows have {} pairs, fewer than the {new} rows that hierarchical would compose", old * old)]
    TooFewPairs {
        /// Rows of the table.
        old: usize,
        /// Rows asked for.
        new: usize,
    },
}

impl Resizing {
    /// Which old rows, with which weights, make up each of `new` rows of a table of `old` ones. A row
    /// that is kept as it is has one weight of 1.
    ///
    /// # Errors
    /// Where a table of so many rows cannot be made in this way.
    pub fn weights(
        self,
        old: usize,
        new: usize,
        corners: Corners,
    ) -> Result<Vec<Weights>, ResizeError> {
        if old == 0 || new == 0 {
            return Err(ResizeError::Empty);
        }
        let row: Box<dyn Fn(usize) -> Weights> = match self {
            _ if old == new => Box::new(|row| vec![(row, 1.0)]),
            Self::Linear => Box::new(move |row| linear(source(row, old, new, corners), old)),
            Self::Cubic => Box::new(move |row| cubic(source(row, old, new, corners), old)),
            Self::Truncate if new > old => return Err(ResizeError::NotShorter { old, new }),
            Self::Truncate => Box::new(|row| vec![(row, 1.0)]),
            Self::Tile | Self::Hierarchical if new < old => {
                return Err(ResizeError::NotLonger { by: self, old, new });
            }
            Self::Tile => Box::new(move |row| vec![(row % old, 1.0)]),
            Self::Hierarchical if old.checked_mul(old).is_some_and(|pairs| pairs < new) => {
                return Err(ResizeError::TooFewPairs { old, new });
            }
            Self::Hierarchical => Box::new(move |row| composed(row / old, row % old)),
        };
        Ok((0..new).map(row).collect())
    }

    /// Whether the first rows stay as they are.
    pub fn keeps_first_rows(self) -> bool {
        matches!(self, Self::Tile | Self::Hierarchical | Self::Truncate)
    }
}

/// Where a new row lies among the old ones.
fn source(row: usize, old: usize, new: usize, corners: Corners) -> f64 {
    let (row, old, new) = (row as f64, old as f64, new as f64);
    match corners {
        Corners::HalfPixel => (row + 0.5) * old / new - 0.5,
        Corners::Aligned if new > 1.0 => row * (old - 1.0) / (new - 1.0),
        Corners::Aligned => 0.0,
    }
}

/// Between the two nearest rows; before the first and after the last, these.
fn linear(at: f64, rows: usize) -> Weights {
    let last = rows - 1;
    let at = at.clamp(0.0, last as f64);
    let below = at.floor();
    let share = at - below;
    let below = below as usize;
    sum([(below, 1.0 - share), ((below + 1).min(last), share)])
}

/// Between the four nearest rows, where the first and the last go on for ever.
fn cubic(at: f64, rows: usize) -> Weights {
    let last = rows as i64 - 1;
    let below = at.floor();
    let share = at - below;
    let near = |x: f64| ((CUBIC + 2.0) * x - (CUBIC + 3.0)) * x * x + 1.0;
    let far = |x: f64| ((CUBIC * x - 5.0 * CUBIC) * x + 8.0 * CUBIC) * x - 4.0 * CUBIC;
    let kernel = [
        far(share + 1.0),
        near(share),
        near(1.0 - share),
        far(2.0 - share),
    ];
    let row = |i: usize| (below as i64 - 1 + i as i64).clamp(0, last) as usize;
    sum([0, 1, 2, 3].map(|i| (row(i), kernel[i])))
}

/// `α u(tens) + (1 − α) u(units)` of `u(i) = (p(i) − α p(0)) / (1 − α)`, sorted by rows.
fn composed(tens: usize, units: usize) -> Weights {
    if tens == 0 {
        return vec![(units, 1.0)];
    }
    let share = ALPHA / (1.0 - ALPHA);
    sum([(units, 1.0), (tens, share), (0, -share)])
}

/// The weights with those of the same row added, without zeros.
fn sum<const N: usize>(weights: [(usize, f64); N]) -> Weights {
    let mut all: Weights = vec![];
    for (row, weight) in weights {
        match all.iter_mut().find(|(known, _)| *known == row) {
            Some((_, sum)) => *sum += weight,
            None => all.push((row, weight)),
        }
    }
    all.retain(|(_, weight)| *weight != 0.0);
    all
}

/// The rows that weights make of a table `[row, feature]`.
///
/// # Panics
/// Where a weight is that of a row that the table does not have.
pub fn resized(table: ArrayView2<'_, f64>, weights: &[Weights]) -> Array2<f64> {
    let mut all = Array2::zeros((weights.len(), table.ncols()));
    for (mut row, weights) in all.rows_mut().into_iter().zip(weights) {
        let mut parts = weights.iter();
        if let Some((first, weight)) = parts.next() {
            // From the first part on, so that a kept zero keeps its sign.
            row.assign(&weighted(table, *first, *weight));
        }
        for (part, weight) in parts {
            row += &weighted(table, *part, *weight);
        }
    }
    all
}

fn weighted(table: ArrayView2<'_, f64>, row: usize, weight: f64) -> Array1<f64> {
    table.row(row).mapv(|v| weight * v)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::arr2;

    fn of(rows: &[f64], new: usize, by: Resizing, corners: Corners) -> Vec<f64> {
        let table = Array2::from_shape_vec((rows.len(), 1), rows.to_vec()).unwrap();
        let weights = by.weights(rows.len(), new, corners).unwrap();
        resized(table.view(), &weights).into_raw_vec_and_offset().0
    }

    fn near(got: &[f64], want: &[f64]) -> bool {
        got.len() == want.len() && got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6)
    }

    const ROWS: [f64; 4] = [1.0, -2.0, 4.0, 0.5];

    /// From PyTorch 2.15 in float64: `interpolate(rows[None, None, :, None], (n, 1), mode="bicubic")`,
    /// `interpolate(rows[None, None], n, mode="linear")`, and both with `align_corners=True`.
    #[test]
    fn interpolation_is_that_of_pytorch() {
        use Corners::{Aligned, HalfPixel};
        use Resizing::{Cubic, Linear};
        let cases: [(Resizing, Corners, &[f64]); 8] = [
            (
                Linear,
                HalfPixel,
                &[1.0, -0.0714286, -1.7857143, 1.0, 3.75, 1.75, 0.5],
            ),
            (Linear, HalfPixel, &[0.5, 1.0, 1.0833333]),
            (Linear, Aligned, &[1.0, -0.5, -2.0, 1.0, 4.0, 2.25, 0.5]),
            (Linear, Aligned, &[1.0, 1.0, 0.5]),
            (
                Cubic,
                HalfPixel,
                &[
                    1.2976494, -0.3912172, -2.1055029, 1.046875, 4.076895, 2.0615889, 0.1527423,
                ],
            ),
            (Cubic, HalfPixel, &[0.4652778, 1.046875, 1.1064815]),
            (
                Cubic,
                Aligned,
                &[1.0, -1.0625, -2.0, 1.046875, 4.0, 2.8125, 0.5],
            ),
            (Cubic, Aligned, &[1.0, 1.046875, 0.5]),
        ];
        for (by, corners, want) in cases {
            let got = of(&ROWS, want.len(), by, corners);
            assert!(near(&got, want), "{by} {corners} {}: {got:?}", want.len());
        }
    }

    #[test]
    fn a_method_is_not_another() {
        let half = of(&ROWS, 7, Resizing::Linear, Corners::HalfPixel);
        assert!(!near(
            &half,
            &of(&ROWS, 7, Resizing::Linear, Corners::Aligned)
        ));
        assert!(!near(
            &half,
            &of(&ROWS, 7, Resizing::Cubic, Corners::HalfPixel)
        ));
    }

    #[test]
    fn as_many_rows_are_the_same() {
        for by in [
            Resizing::Linear,
            Resizing::Cubic,
            Resizing::Tile,
            Resizing::Hierarchical,
            Resizing::Truncate,
        ] {
            for corners in [Corners::HalfPixel, Corners::Aligned] {
                assert_eq!(of(&ROWS, 4, by, corners), ROWS, "{by}");
            }
        }
    }

    #[test]
    fn first_rows_stay_to_the_bit() {
        let rows = [0.1, -0.0, 0.3];
        for by in [Resizing::Tile, Resizing::Hierarchical] {
            let got = of(&rows, 8, by, Corners::HalfPixel);
            let bits = |row: &f64| row.to_bits();
            assert!(got[..3].iter().map(bits).eq(rows.iter().map(bits)), "{by}");
            assert!(by.keeps_first_rows());
        }
        assert_eq!(
            of(&rows, 7, Resizing::Tile, Corners::HalfPixel)[3..],
            [0.1, -0.0, 0.3, 0.1]
        );
        assert_eq!(
            of(&rows, 2, Resizing::Truncate, Corners::HalfPixel),
            [0.1, -0.0]
        );
    }

    #[test]
    fn rows_are_composed_as_su_says() {
        let u = |p: f64| (p - 0.4 * ROWS[0]) / 0.6;
        let want: Vec<f64> = (0..16)
            .map(|n| 0.4 * u(ROWS[n / 4]) + 0.6 * u(ROWS[n % 4]))
            .collect();
        let got = of(&ROWS, 16, Resizing::Hierarchical, Corners::HalfPixel);
        assert!(near(&got, &want), "{got:?}");
        let swapped: Vec<f64> = (0..16)
            .map(|n| 0.6 * u(ROWS[n / 4]) + 0.4 * u(ROWS[n % 4]))
            .collect();
        assert!(!near(&got, &swapped), "control: the shares swapped");
    }

    #[test]
    fn what_cannot_be_made_is_refused() {
        let make = |by: Resizing, old, new| by.weights(old, new, Corners::HalfPixel).unwrap_err();
        for (why, says) in [
            (make(Resizing::Truncate, 4, 5), "cannot be cut off to 5"),
            (make(Resizing::Tile, 4, 3), "fewer than 4"),
            (make(Resizing::Hierarchical, 4, 3), "fewer than 4"),
            (make(Resizing::Hierarchical, 4, 17), "4 rows have 16 pairs"),
            (make(Resizing::Linear, 0, 3), "without rows"),
            (make(Resizing::Linear, 3, 0), "without rows"),
        ] {
            assert!(why.to_string().contains(says), "{why}");
        }
    }

    #[test]
    fn rows_of_several_features_are_resized_alike() {
        let table = arr2(&[[1.0, 10.0], [3.0, 30.0]]);
        let weights = Resizing::Linear.weights(2, 4, Corners::HalfPixel).unwrap();
        let got = resized(table.view(), &weights);
        assert_eq!(got.column(0).mapv(|v| 10.0 * v), got.column(1));
        assert_eq!(got.column(0).to_vec(), [1.0, 1.5, 2.5, 3.0]);
    }
}
