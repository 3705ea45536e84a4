//! Fused operators of com.microsoft other than attention: dimensions only.

use ndarray::Axis;

use super::call::{Call, Outputs, typed};
use super::shape::{axis, dim, product};
use super::{Value, Why};
use crate::dtype::DType;

/// Ids `[b, s]` and tables to embeddings `[b, s, d]`, the mask's lengths `[b]`, and the sum.
pub(super) fn embed_layer_normalization(c: &Call<'_>) -> Outputs {
    let ids = c.need(0)?;
    let words = c.need(2)?;
    let embedded = match (ids.dims.as_deref(), words.dims.as_deref()) {
        (Some(&[b, s]), Some(&[_, d])) => Some(vec![b, s, d]),
        (Some(ids), Some(words)) if ids.len() != 2 || words.len() != 2 => {
            return Err(Why::Rank.into());
        }
        _ => None,
    };
    let lengths = ids
        .dims
        .as_deref()
        .and_then(|d| d.first())
        .map(|b| vec![*b]);
    // How many tokens of each sequence count.
    let mask = c.at(7).and_then(Value::to_i64);
    let lengths = match mask.filter(|mask| mask.ndim() == 2) {
        Some(mask) => Value::int(mask.sum_axis(Axis(1))).with_dtype(DType::I32),
        None => Value::shaped(Some(DType::I32), lengths),
    };
    Ok(vec![
        Value::shaped(words.dtype, embedded.clone()),
        lengths,
        Value::shaped(words.dtype, embedded),
    ])
}

/// A product with a matrix `[n, k]` packed in blocks.
pub(super) fn mat_mul_n_bits(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    let (k, n) = (c.int("K")?, c.int("N")?);
    let k = dim(k.ok_or(Why::Attribute("K"))?)?;
    let n = dim(n.ok_or(Why::Attribute("N"))?)?;
    let Some(dims) = x.dims.as_deref() else {
        return typed(x.dtype);
    };
    match dims {
        [outer @ .., inner] if *inner == k => {
            let dims = [outer, &[n]].concat();
            Ok(vec![Value::shaped(x.dtype, Some(dims))])
        }
        _ => Err(Why::Shapes.into()),
    }
}

/// Rows of a table whose numbers are packed in blocks with a scale each.
pub(super) fn gather_block_quantized(c: &Call<'_>) -> Outputs {
    let (table, indices, scales) = (c.need(0)?, c.need(1)?, c.need(2)?);
    let (Some(dims), Some(picked)) = (table.dims.as_deref(), indices.dims.as_deref()) else {
        return typed(scales.dtype);
    };
    let mut dims = dims.to_vec();
    let along = axis(c.int("gather_axis")?.unwrap_or(0), dims.len())?;
    // Numbers of fewer bits share the bytes of the last axis.
    if let (Some(DType::U8), Some(last)) = (table.dtype, dims.last_mut()) {
        let shared = match c.int("bits")?.unwrap_or(4) {
            2 => 4,
            4 => 2,
            8 => 1,
            _ => return Err(Why::Attribute("bits").into()),
        };
        *last = product(&[*last, shared])?;
    }
    dims.splice(along..=along, picked.iter().copied());
    Ok(vec![Value::shaped(scales.dtype, Some(dims))])
}

/// x `[b, s, d]` and weights to gate and bring back: the dimensions of x.
pub(super) fn bias_gelu(c: &Call<'_>) -> Outputs {
    c.need(1)?;
    super::unary::like(c)
}
