//! Sines and cosines of patches on another grid, compared with their formula.

use ndarray::{ArrayD, ArrayView1};
use posenc_encodings::families::sinusoidal::Sinusoidal;

use crate::graph::extent::Extent;
use crate::plan::resize::rows::by_row;
use crate::plan::resize::table::ResizedTable;
use crate::prove::bound::{ROUNDINGS, WAVE};

/// The first row that is not that of the code, or that changed beside the grid; `None` inside where all are right, and
/// outside where there is no grid to compare.
pub(super) fn departs(
    (old, new): (&ArrayD<f64>, &ArrayD<f64>),
    table: &ResizedTable,
    code: &Sinusoidal,
    epsilon: f64,
) -> Option<Option<usize>> {
    let (from, to) = (table.sides(Extent::before)?, table.sides(Extent::after)?);
    let want = code.reference_grid()?;
    let (old, lead) = by_row(old, &table.axes, Extent::before);
    let (new, _) = by_row(new, &table.axes, Extent::after);
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
