//! Biases by the offset of two patches, on another grid: the table of offsets is interpolated, and every
//! pair picks its number again.

use ndarray::{ArrayD, IxDyn};
use posenc_ir::Tensor;

use super::numbers::{along, numbers, refuse, stored};
use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::graph::extent::Extent;
use crate::plan::resize::Wanted;
use crate::plan::resize::offsets::{ResizedBias, offset};

/// The bias of the new grid.
///
/// # Errors
/// Where pairs of the same offset have different numbers.
pub(super) fn tensor(
    context: &Context<'_>,
    bias: &ResizedBias,
    wanted: &Wanted,
) -> Result<Tensor, RewriteError> {
    let Wanted::Image { by, .. } = wanted else {
        return Err(refuse(context, bias.value, "is of images"));
    };
    let old = numbers(context, bias.value)?;
    let unlike = || {
        let why = "has several numbers for pairs of patches with the same offset";
        refuse(context, bias.value, why)
    };
    let mut table = bias.offsets(&old).ok_or_else(unlike)?;
    let lead = old.ndim() - 2;
    for side in [0, 1] {
        let [old, new] = [bias.old, bias.new].map(|grid| 2 * grid[side] - 1);
        table = along(table, lead + side, &Extent::One { old, new }, by.biases)
            .map_err(|why| refuse(context, bias.value, &format!("cannot be resized: {why}")))?;
    }
    Ok(stored(context, bias.value, &paired(&old, &table, bias)))
}

/// The number of each pair of the new grid; rows and columns of the prefix have one number along the
/// patches.
fn paired(old: &ArrayD<f64>, table: &ArrayD<f64>, bias: &ResizedBias) -> ArrayD<f64> {
    let lead = old.ndim() - 2;
    let count = bias.prefix + bias.new[0] * bias.new[1];
    let mut dims = old.shape()[..lead].to_vec();
    dims.extend([count, count]);
    ArrayD::from_shape_fn(dims, |index| {
        let index: &[usize] = ndarray::Dimension::slice(&index);
        let (lead, pair) = index.split_at(lead);
        let patches = [pair[0], pair[1]].map(|token| token.checked_sub(bias.prefix));
        let at = match patches {
            [Some(query), Some(key)] => {
                return table[IxDyn(&[lead, &offset(bias.new, query, key)].concat())];
            }
            // The first patch stands for all.
            _ => [pair[0], pair[1]].map(|token| token.min(bias.prefix)),
        };
        old[IxDyn(&[lead, &at].concat())]
    })
}
