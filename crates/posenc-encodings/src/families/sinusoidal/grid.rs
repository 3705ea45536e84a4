//! Codes of an image: half of a row for each coordinate.

use std::f64::consts::TAU;

use ndarray::{ArrayView2, s};

use super::{Image, Order, Precision, Sinusoidal, identify};
use crate::miss::Miss;

/// Coordinates that run to 2π may be divided by a little more than their number.
const NORMAL: f64 = 1e-3;

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
