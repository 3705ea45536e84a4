//! Tables with more or fewer rows: every new row is a weighted sum of old ones.
//!
//! Sources: `linear` and `cubic` are the interpolations of `torch.nn.functional.interpolate` along
//! rows, the cubic one with a = −0.75 (Keys, 10.1109/TASSP.1981.1163711, section II); `tile` is how
//! Beltagy et al., arXiv:2004.05150, section 5, begin a longer table; `hierarchical` is the
//! decomposition of Su, kexue.fm/archives/7947, with α = 0.4.

pub mod distances;

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

words! {
    /// Whether rows are smoothed where they become fewer.
    "antialiasing" Antialias {
        /// Interpolation between the nearest rows.
        Off = "off",
        /// Interpolation over as many rows as fall on a new one.
        On = "on",
    } default Off
}

impl Resizing {
    /// Whether new rows are mixtures of old ones.
    pub fn mixes(self) -> bool {
        !matches!(self, Self::Tile | Self::Truncate)
    }
}

/// The parameter of the cubic kernel of PyTorch without antialiasing.
const CUBIC: f64 = -0.75;

/// The same with antialiasing, as in Pillow.
const SMOOTH: f64 = -0.5;

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
    #[error("truncate cannot extend {old} rows to {new}")]
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
    /// Antialiasing is of interpolations between the edges.
    #[error("antialiasing is of linear and cubic, without aligned corners")]
    NotSmoothed,
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

    /// The same for one side of a grid, where `linear` and `cubic` may be antialiased: as
    /// `torch.nn.functional.interpolate(.., antialias=True)`, which is another interpolation even where
    /// rows become more.
    ///
    /// # Errors
    /// Where a side of so many rows cannot be made in this way.
    pub fn side(
        self,
        old: usize,
        new: usize,
        corners: Corners,
        antialias: Antialias,
    ) -> Result<Vec<Weights>, ResizeError> {
        let kernel: (f64, fn(f64) -> f64) = match (self, antialias, corners) {
            (Self::Linear, Antialias::On, Corners::HalfPixel) => (1.0, triangle),
            (Self::Cubic, Antialias::On, Corners::HalfPixel) => (2.0, |x| keys(SMOOTH, x)),
            (_, Antialias::On, _) => return Err(ResizeError::NotSmoothed),
            _ => return self.weights(old, new, corners),
        };
        if old == 0 || new == 0 {
            return Err(ResizeError::Empty);
        }
        Ok((0..new)
            .map(|row| smoothed(row, old, new, kernel))
            .collect())
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

/// Over all old rows that a kernel reaches which is as wide as a new row where that is wider; the
/// weights are those within the table, made to sum to 1.
fn smoothed(row: usize, old: usize, new: usize, (reach, of): (f64, fn(f64) -> f64)) -> Weights {
    let step = old as f64 / new as f64;
    let width = step.max(1.0);
    let center = (row as f64 + 0.5) * step;
    let from = (center - reach * width + 0.5).floor().max(0.0) as usize;
    let to = ((center + reach * width + 0.5).floor() as usize).min(old);
    let weight = |i: usize| of((i as f64 + 0.5 - center) / width);
    let all: f64 = (from..to).map(weight).sum();
    (from..to).map(|i| (i, weight(i) / all)).collect()
}

fn triangle(x: f64) -> f64 {
    (1.0 - x.abs()).max(0.0)
}

/// The kernel of Keys.
fn keys(a: f64, x: f64) -> f64 {
    match x.abs() {
        x if x <= 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
        x if x < 2.0 => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
        _ => 0.0,
    }
}

/// Between the four nearest rows, where the first and the last go on for ever.
fn cubic(at: f64, rows: usize) -> Weights {
    let last = rows as i64 - 1;
    let below = at.floor();
    let share = at - below;
    let kernel = [share + 1.0, share, 1.0 - share, 2.0 - share].map(|x| keys(CUBIC, x));
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

    /// From PyTorch 2.15 in float64: the second column of `interpolate(grid, (n, 3), mode, antialias=True)`
    /// of a grid of three equal columns.
    #[test]
    fn antialiasing_is_that_of_pytorch() {
        use Resizing::{Cubic, Linear};
        let smoothed = |by: Resizing, new: usize, antialias| {
            let table = Array2::from_shape_vec((4, 1), ROWS.to_vec()).unwrap();
            let weights = by.side(4, new, Corners::HalfPixel, antialias).unwrap();
            resized(table.view(), &weights).into_raw_vec_and_offset().0
        };
        let cases: [(Resizing, &[f64]); 4] = [
            (
                Cubic,
                &[
                    1.2379808, -0.1352452, -2.0485366, 1.03125, 4.0259044, 1.7862718, 0.2223558,
                ],
            ),
            (Cubic, &[-0.0846682, 1.0176006, 1.708238]),
            (Linear, &[1.0, -0.0714286, -1.7857143, 1.0, 3.75, 1.75, 0.5]),
            (Linear, &[0.1, 1.0, 1.55]),
        ];
        for (by, want) in cases {
            let got = smoothed(by, want.len(), Antialias::On);
            assert!(near(&got, want), "{by} {}: {got:?}", want.len());
        }
        for (by, new) in [(Cubic, 7), (Cubic, 3), (Linear, 3)] {
            let plain = smoothed(by, new, Antialias::Off);
            assert!(
                !near(&smoothed(by, new, Antialias::On), &plain),
                "{by} {new}"
            );
        }
        let tile = Resizing::Tile.side(4, 7, Corners::HalfPixel, Antialias::On);
        assert_eq!(tile, Err(ResizeError::NotSmoothed));
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
            (
                make(Resizing::Truncate, 4, 5),
                "truncate cannot extend 4 rows to 5",
            ),
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
