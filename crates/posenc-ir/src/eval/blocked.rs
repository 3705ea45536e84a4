//! Images with channels in blocks, as ONNX Runtime stores them in its domain com.microsoft.nchwc: dimensions only, as
//! weights are stored in another order too.

use super::call::{Call, Outputs, typed};
use super::shape::{dim, product};
use super::{EvalError, Value, Why};

/// Channels first, in blocks. They are counted as before, also where the last block is filled up.
pub(super) fn reorder_input(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    let dims = match (x.dims.as_deref(), c.flag("channels_last")?) {
        (Some(&[n, ref space @ .., channels]), true) => Some([&[n, channels], space].concat()),
        (dims, _) => dims.map(<[usize]>::to_vec),
    };
    Ok(vec![Value::shaped(x.dtype, dims)])
}

/// Back to the order of ai.onnx, without the channels that fill up the last block.
pub(super) fn reorder_output(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    let channels = dim(c.int("channels")?.ok_or(Why::Attribute("channels"))?)?;
    let Some(dims) = x.dims.as_deref() else {
        return typed(x.dtype);
    };
    let [n, _, space @ ..] = dims else {
        return Err(Why::Rank.into());
    };
    let dims = match c.flag("channels_last")? {
        true => [&[*n], space, &[channels]].concat(),
        false => [&[*n, channels], space].concat(),
    };
    Ok(vec![Value::shaped(x.dtype, Some(dims))])
}

/// Each axis is as many times as long.
pub(super) fn upsample(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    let scales = c.ints("scales")?.ok_or(Why::Attribute("scales"))?;
    let Some(dims) = x.dims.as_deref() else {
        return typed(x.dtype);
    };
    if scales.len() != dims.len() {
        return Err(Why::Rank.into());
    }
    let larger = dims.iter().zip(scales);
    let larger = larger.map(|(n, scale)| product(&[*n, dim(*scale)?]));
    let dims: Result<Vec<usize>, EvalError> = larger.collect();
    Ok(vec![Value::shaped(x.dtype, Some(dims?))])
}
