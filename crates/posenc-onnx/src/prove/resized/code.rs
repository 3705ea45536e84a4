//! Sines and cosines of patches on another grid, compared with their formula.

use ndarray::{ArrayD, ArrayView1};
use posenc_encodings::families::sinusoidal::Sinusoidal;

use crate::graph::extent::Extent;
use crate::plan::resize::rows::{by_row, sides};
use crate::prove::bound::{ROUNDINGS, WAVE};

/// The first row that is not that of the code, or that changed beside the grid; `None` inside where all are right, and
/// outside where there is no grid to compare.
pub(super) fn departs(
    (old, new): (&ArrayD<f64>, &ArrayD<f64>),
    axes: &[Extent],
    code: &Sinusoidal,
    epsilon: f64,
) -> Option<Option<usize>> {
    let (from, to) = (sides(axes, Extent::before)?, sides(axes, Extent::after)?);
    let want = code.reference_grid()?;
    let (old, lead) = by_row(old, axes, Extent::before);
    let (new, _) = by_row(new, axes, Extent::after);
    let [old_patches, patches] = [from, to].map(|[rows, columns]| rows * columns);
    if want.dim() != (patches, new.ncols()) || new.nrows() + old_patches != old.nrows() + patches {
        return Some(Some(0));
    }
    let bound = WAVE.max(ROUNDINGS * epsilon) * code.amplitude.abs();
    let is_near = |row: usize| {
        let same = |a: ArrayView1<'_, f64>, b: ArrayView1<'_, f64>, bound: f64| {
            a.iter().zip(b).all(|(a, b)| (a - b).abs() <= bound)
        };
        match row.checked_sub(lead) {
            None => same(new.row(row), old.row(row), 0.0),
            Some(patch) if patch < patches => same(new.row(row), want.row(patch), bound),
            Some(behind) => {
                let before = lead + behind - patches + old_patches;
                same(new.row(row), old.row(before), 0.0)
            }
        }
    };
    Some((0..new.nrows()).find(|row| !is_near(*row)))
}

#[cfg(test)]
mod tests {
    use ndarray::Axis;
    use posenc_encodings::families::sinusoidal::{Denominator, Image, Order};
    use posenc_encodings::layout::Layout;

    use super::*;

    fn code(grid: [usize; 2], is_normalized: bool, order: Order) -> Sinusoidal {
        Sinusoidal {
            dim: 16,
            layout: Layout::Half,
            cosines_first: false,
            denominator: Denominator::Pairs,
            base: 1e4,
            factor: 1.0,
            amplitude: 1.0,
            max_positions: None,
            offset: 0,
            image: Some(Image {
                grid,
                order,
                normalized: is_normalized,
                centered: false,
                prefix: 1,
            }),
        }
    }

    /// A row of a class token, the rows of the grid, and one of a register.
    fn rows(code: &Sinusoidal) -> ArrayD<f64> {
        let grid = code.reference_grid().unwrap();
        let other = ndarray::Array2::from_elem((1, 16), 7.0);
        let all = [other.view(), grid.view(), other.view()];
        ndarray::concatenate(Axis(0), &all).unwrap().into_dyn()
    }

    #[test]
    fn other_rows_of_a_grid_depart_from_the_formula() {
        let (from, to) = ([4, 4], [6, 3]);
        let side = |at: usize| Extent::One {
            old: from[at],
            new: to[at],
        };
        let patches = Extent::Product(vec![side(0), side(1)]);
        let tokens = Extent::Sum(vec![Extent::same(1), patches, Extent::same(1)]);
        let axes = [tokens, Extent::same(16)];
        for is_normalized in [false, true] {
            let on = |grid| code(grid, is_normalized, Order::RowsFirst);
            let (wanted, old, new) = (on(to), rows(&on(from)), rows(&on(to)));
            let departs = |old: &ArrayD<f64>, new: &ArrayD<f64>| {
                super::departs((old, new), &axes, &wanted, f64::from(f32::EPSILON)).unwrap()
            };
            assert_eq!(departs(&old, &new), None);
            let turned = rows(&code(to, is_normalized, Order::ColumnsFirst));
            let otherwise = rows(&code(to, !is_normalized, Order::RowsFirst));
            for other in [turned, otherwise] {
                assert!(departs(&old, &other).is_some(), "another code");
            }
            for row in [0, 5, 19] {
                let mut damaged = new.clone();
                damaged[[row, 3]] += 1e-3;
                assert_eq!(departs(&old, &damaged), Some(row), "one number");
                damaged[[row, 3]] = f64::NAN;
                assert_eq!(departs(&old, &damaged), Some(row), "no number");
            }
        }
    }
}
