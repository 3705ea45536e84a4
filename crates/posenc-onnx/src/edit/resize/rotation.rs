//! Cosines and sines of rows and columns, of the formula on another grid.

use posenc_ir::Tensor;

use super::numbers::{numbers, refuse, stored};
use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::plan::resize::rotations::ResizedRotation;

/// The numbers of the new grid.
///
/// # Errors
/// Where the old ones are not at hand.
pub(super) fn tensor(
    context: &Context<'_>,
    rotation: &ResizedRotation,
) -> Result<Tensor, RewriteError> {
    let old = numbers(context, rotation.value)?;
    let new = rotation.numbers(&old);
    let new = new.ok_or_else(|| refuse(context, rotation.value, "is of no grid"))?;
    Ok(stored(context, rotation.value, &new))
}
