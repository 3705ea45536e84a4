//! Fourier transforms: dimensions only.

use super::call::{Call, Given, Outputs, typed};
use super::{Value, Why};

use super::shape::{axis, dim};

/// The axis is an attribute before opset 20 and input 2 since; the last axis holds the real and the
/// imaginary parts.
pub(super) fn dft(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    let named = match c.number("axis", 2)? {
        Given::Known(named) => named,
        Given::Absent if c.opset < 20 => 1,
        Given::Absent => -2,
        Given::Unknown => return typed(x.dtype),
    };
    let Some(mut dims) = x.dims.clone() else {
        return typed(x.dtype);
    };
    let own = axis(named, dims.len())?;
    let Some(last) = dims.len().checked_sub(1).filter(|last| own < *last) else {
        return Err(Why::Rank.into());
    };
    let length = match c.at(1) {
        Some(length) => length.scalar_i64(),
        None => i64::try_from(dims[own]).ok(),
    };
    let Some(length) = length else {
        return typed(x.dtype);
    };
    let (is_half, is_inverse) = (c.flag("onesided")?, c.flag("inverse")?);
    let length = dim(length)?;
    dims[own] = match is_half && !is_inverse {
        true => length / 2 + 1,
        false => length,
    };
    dims[last] = if is_half && is_inverse { 1 } else { 2 };
    Ok(vec![Value::shaped(x.dtype, Some(dims))])
}
