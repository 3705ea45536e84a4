//! Sines and cosines of patches on another grid.

use ndarray::{Array2, s};
use posenc_encodings::families::sinusoidal::Sinusoidal;
use posenc_ir::Tensor;

use super::numbers::{numbers, refuse, stored};
use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::graph::extent::Extent;
use crate::plan::resize::rows::{by_row, of_rows};
use crate::plan::resize::table::ResizedTable;

/// What is added then: rows beside the grid, and coordinates that were there before, keep their numbers.
pub(super) fn tensor(
    context: &Context<'_>,
    table: &ResizedTable,
    code: &Sinusoidal,
) -> Result<Tensor, RewriteError> {
    let unknown = || refuse(context, table.value, "has no rows of a grid of patches");
    let before = table.sides(Extent::before).ok_or_else(unknown)?;
    let image = code.image.ok_or_else(unknown)?;
    let grid = code.reference_grid().ok_or_else(unknown)?;
    let (old, lead) = by_row(&numbers(context, table.value)?, &table.axes, Extent::before);
    if old.ncols() != grid.ncols() {
        return Err(unknown());
    }
    let (patches, behind) = (before[0] * before[1], grid.nrows() + lead);
    let others = old.nrows() - patches;
    let mut new = Array2::zeros((grid.nrows() + others, grid.ncols()));
    new.slice_mut(s![..lead, ..])
        .assign(&old.slice(s![..lead, ..]));
    new.slice_mut(s![behind.., ..])
        .assign(&old.slice(s![lead + patches.., ..]));
    let [_, columns] = image.grid;
    for (patch, row) in grid.outer_iter().enumerate() {
        let (y, x) = (patch / columns, patch % columns);
        let is_old = !image.normalized && y < before[0] && x < before[1];
        let row = match is_old {
            true => old.row(lead + y * before[1] + x),
            false => row,
        };
        new.row_mut(lead + patch).assign(&row);
    }
    Ok(stored(context, table.value, &of_rows(new, &table.axes)))
}
