//! Codes of an image: half of a row for each coordinate.

use std::f64::consts::TAU;

use ndarray::{ArrayView2, s};

use super::{Image, Order, Precision, Sinusoidal, identify};
use crate::miss::Miss;

/// Coordinates that run to 2π may be divided by a little more than their number.
const NORMAL: f64 = 1e-3;

/// How exactly numbers of a grid follow sines, as a share of the largest amplitude.
const EXACT: f64 = 1e-3;

/// How far two numbers of a line differ at least, as a share of the largest amplitude, to show a frequency.
const VARIED: f64 = 0.05;

/// How exactly two lines have the same frequency: the cosine of it, twice.
const ALIKE: f64 = 2e-2;

/// Whether all columns of rows `[row · columns + column, dim]` are sums of a sine over the rows, a sine over the
/// columns and a number, of any amplitudes, phases and frequencies: no learned table is. Grids with fewer than four
/// rows and columns do not show it.
pub fn has_waves(rows: ArrayView2<'_, f64>, [height, width]: [usize; 2]) -> bool {
    if rows.nrows() != height * width || height == 0 || width == 0 {
        return false;
    }
    let reach = |column: ndarray::ArrayView1<'_, f64>| {
        let bound = |of: fn(f64, f64) -> f64, from| column.iter().fold(from, |a, b| of(a, *b));
        (bound(f64::max, f64::MIN) - bound(f64::min, f64::MAX)) / 2.0
    };
    let largest = rows.columns().into_iter().map(reach).fold(0.0, f64::max);
    let mut shown = vec![];
    for column in rows.columns() {
        let at = |y: usize, x: usize| column[y * width + x];
        let mut places = (0..height).flat_map(|y| (0..width).map(move |x| (y, x)));
        let is_sum = |(y, x)| {
            let rest = at(y, x) - at(y, 0) - at(0, x) + at(0, 0);
            rest.abs() <= EXACT * largest
        };
        if !places.all(is_sum) {
            return false;
        }
        let lines = [
            (0..height).map(|y| at(y, 0)).collect::<Vec<f64>>(),
            (0..width).map(|x| at(0, x)).collect(),
        ];
        for line in &lines {
            match Steps::of(line, largest) {
                Steps::None => return false,
                Steps::Unknown => {}
                Steps::Cosine(twice) => shown.push((line.len(), twice)),
            }
        }
    }
    // Four numbers are on a sine of some frequency; sine and cosine of one angle have the same, and so may rows and
    // columns.
    let has_partner = |at: usize| {
        let (length, twice) = shown[at];
        let mut others = (0..shown.len()).filter(|other| *other != at);
        length > 4 || others.any(|other| (shown[other].1 - twice).abs() <= ALIKE)
    };
    let partners = (0..shown.len()).filter(|at| has_partner(*at)).count();
    shown.len() >= 4 && 4 * partners >= 3 * shown.len()
}

/// How a line of numbers goes on from place to place.
enum Steps {
    /// Along no sine.
    None,
    /// Too short, or with too little change, to tell.
    Unknown,
    /// Along a sine whose angle grows by one whose cosine, twice, is this.
    Cosine(f64),
}

impl Steps {
    /// Neighbors of a number on a sine about a mean add up to the same multiple of it, but for a number that is one
    /// for all.
    fn of(line: &[f64], largest: f64) -> Self {
        if line.len() < 4 {
            return Self::Unknown;
        }
        let inner = &line[1..line.len() - 1];
        let sums: Vec<f64> = line.windows(3).map(|w| w[0] + w[2]).collect();
        let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
        let (middle, sum) = (mean(inner), mean(&sums));
        let spread = inner.iter().map(|v| (v - middle).abs()).fold(0.0, f64::max);
        if spread < VARIED * largest {
            return Self::Unknown;
        }
        let pairs = || sums.iter().zip(inner).map(|(s, v)| (s - sum, v - middle));
        let squares: f64 = pairs().map(|(_, v)| v * v).sum();
        let twice = pairs().map(|(s, v)| s * v).sum::<f64>() / squares;
        let is_exact = pairs().all(|(s, v)| (s - twice * v).abs() <= EXACT * largest);
        match is_exact && twice.abs() <= 2.0 + ALIKE {
            true => Self::Cosine(twice),
            false => Self::None,
        }
    }
}

/// Reads rows `[row · columns + column, dim]` as a code of the patches of an image. Also gives the
/// largest difference from the formula.
///
/// # Errors
/// A [`Miss`] that says what about the numbers is no such code.
pub fn identify_grid(
    rows: ArrayView2<'_, f64>,
    [height, width]: [usize; 2],
    precision: Precision,
) -> Result<(Sinusoidal, f64), Miss> {
    let dim = rows.ncols();
    if !dim.is_multiple_of(4) || rows.nrows() != height * width {
        return Err(Miss::new(
            "rows do not fall into halves for two coordinates",
        ));
    }
    let half = |i: usize| rows.slice(s![.., i * dim / 2..(i + 1) * dim / 2]);
    let near = |a: ArrayView2<'_, f64>, b: ArrayView2<'_, f64>| {
        a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-6)
    };
    // Whether all columns hold the same, and whether all rows do.
    let of_rows = |half: ArrayView2<'_, f64>| {
        (1..width).all(|x| near(half.slice(s![x..;width, ..]), half.slice(s![..;width, ..])))
    };
    let of_columns = |half: ArrayView2<'_, f64>| {
        let first = half.slice(s![..width, ..]);
        (1..height).all(|y| near(half.slice(s![y * width..(y + 1) * width, ..]), first))
    };
    let (order, y, x) = if of_rows(half(0)) && of_columns(half(1)) {
        (Order::RowsFirst, half(0), half(1))
    } else if of_columns(half(0)) && of_rows(half(1)) {
        (Order::ColumnsFirst, half(1), half(0))
    } else {
        return Err(Miss::new("neither half of a row is of one coordinate"));
    };
    let line = |code: ArrayView2<'_, f64>, first: f64| {
        let positions: Vec<f64> = (0..code.nrows()).map(|p| p as f64 + first).collect();
        identify(&positions, code, precision)
    };
    let both = |first: f64| {
        let of_y = line(y.slice(s![..;width, ..]), first)?;
        Ok((of_y, line(x.slice(s![..width, ..]), first)?))
    };
    let (read, centered) = match both(0.0) {
        Ok(read) => (read, false),
        Err(miss) => (both(0.5).map_err(|_: Miss| miss)?, true),
    };
    let ((of_y, y_error), (of_x, x_error)) = read;
    let runs_to = |code: &Sinusoidal, n: usize| (code.factor * TAU / n as f64 - 1.0).abs() < NORMAL;
    let normalized = runs_to(&of_y, height) && runs_to(&of_x, width);
    let factor = if normalized { 1.0 } else { of_y.factor };
    let whole = |code: Sinusoidal| Sinusoidal {
        dim,
        factor: if normalized { 1.0 } else { code.factor },
        image: Some(Image {
            grid: [height, width],
            order,
            normalized,
            centered,
            prefix: 0,
        }),
        ..code
    };
    let (of_y, of_x) = (whole(of_y), whole(of_x));
    if of_y != of_x {
        return Err(Miss::new("the two coordinates have other frequencies"));
    }
    Ok((Sinusoidal { factor, ..of_y }, y_error.max(x_error)))
}
