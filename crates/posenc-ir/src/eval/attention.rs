//! Fused attention: dimensions only.

use super::call::{Call, Outputs};
use super::shape::{dim, product, sum};
use super::{EvalError, Value, Why};
use crate::dtype::DType;

/// The size of one head.
fn per_head(d: usize, heads: usize) -> Result<usize, EvalError> {
    if heads == 0 || !d.is_multiple_of(heads) {
        return Err(Why::Shapes.into());
    }
    Ok(d / heads)
}

fn heads(c: &Call<'_>, name: &'static str) -> Result<usize, EvalError> {
    let n = c.int(name)?.ok_or(Why::Attribute(name))?;
    dim(n)
}

fn all(dtype: Option<DType>, dims: impl IntoIterator<Item = Option<Vec<usize>>>) -> Outputs {
    let values = dims.into_iter().map(|dims| Value::shaped(dtype, dims));
    Ok(values.collect())
}

/// Batch, heads, length and size of an operand `[b, h, s, d]` or `[b, s, h · d]`.
fn operand(dims: &[usize], heads: Option<usize>) -> Result<[usize; 4], EvalError> {
    match *dims {
        [b, h, s, d] => Ok([b, h, s, d]),
        [b, s, hidden] => {
            let h = heads.ok_or(Why::Rank)?;
            Ok([b, h, s, per_head(hidden, h)?])
        }
        _ => Err(Why::Rank.into()),
    }
}

/// The length along axis 2 of the past, 0 where it is omitted; `None` where it is unknown.
fn past_length(c: &Call<'_>, i: usize) -> Result<Option<usize>, EvalError> {
    match c.at(i) {
        None => Ok(Some(0)),
        Some(past) => match past.dims.as_deref() {
            None => Ok(None),
            Some([_, _, length, _]) => Ok(Some(*length)),
            Some(_) => Err(Why::Rank.into()),
        },
    }
}

/// Attention of ai.onnx: q, k, v, mask, past key, past value.
pub(super) fn attention(c: &Call<'_>) -> Outputs {
    let dtype = c.need(0)?.dtype;
    c.need(1)?;
    c.need(2)?;
    let (Some(q), Some(k), Some(v)) = (c.dims(0), c.dims(1), c.dims(2)) else {
        return all(dtype, vec![None; 4]);
    };
    let count = |name: &'static str| c.int(name)?.map(dim).transpose();
    let (q_heads, kv_heads) = (count("q_num_heads")?, count("kv_num_heads")?);
    let flat = q.len() == 3;
    let [batch, heads, length, _] = operand(q, q_heads)?;
    let [_, k_heads, k_length, k_size] = operand(k, kv_heads)?;
    let [_, v_heads, v_length, v_size] = operand(v, kv_heads)?;
    if k_length != v_length {
        return Err(Why::Shapes.into());
    }
    let out = if flat {
        vec![batch, length, product(&[heads, v_size])?]
    } else {
        vec![batch, heads, length, v_size]
    };
    let Some(past) = past_length(c, 4)? else {
        return all(dtype, [Some(out), None, None, None]);
    };
    let total = sum([past, k_length])?;
    all(
        dtype,
        [
            Some(out),
            Some(vec![batch, k_heads, total, k_size]),
            Some(vec![batch, v_heads, total, v_size]),
            Some(vec![batch, heads, length, total]),
        ],
    )
}

/// Attention of com.microsoft: x `[b, s, d]`, weight `[d, q + k + v]`, bias, mask, past
/// `[2, b, h, p, size]`.
pub(super) fn contrib_attention(c: &Call<'_>) -> Outputs {
    let dtype = c.need(0)?.dtype;
    let heads = heads(c, "num_heads")?;
    let Some(x) = c.dims(0) else {
        return all(dtype, [None, None]);
    };
    let &[batch, length, _] = x else {
        return Err(Why::Rank.into());
    };
    let (k_hidden, v_hidden) = match (c.ints("qkv_hidden_sizes")?, c.dims(1), c.dims(2)) {
        (Some(&[_, k, v]), _, _) => (Some(dim(k)?), Some(dim(v)?)),
        (_, Some([.., n]), _) | (_, _, Some([n])) => (Some(n / 3), Some(n / 3)),
        _ => (None, None),
    };
    let out = v_hidden.map(|hidden| vec![batch, length, hidden]);
    let past = match c.at(4) {
        None => Some(0),
        Some(past) => match past.dims.as_deref() {
            Some(&[_, _, _, past, _]) => Some(past),
            Some(_) => return Err(Why::Rank.into()),
            None => None,
        },
    };
    let shared = c.flag("past_present_share_buffer")?;
    let present = match (past, k_hidden) {
        (Some(past), _) if shared && past > 0 => c.dims(4).map(<[usize]>::to_vec),
        (Some(past), Some(hidden)) => {
            let size = per_head(hidden, heads)?;
            Some(vec![2, batch, heads, sum([past, length])?, size])
        }
        _ => None,
    };
    all(dtype, [out, present])
}

/// MultiHeadAttention: query `[b, s, d]` or packed `[b, s, h, 3, size]`, key, value, bias, mask,
/// bias of the scores, past key, past value.
pub(super) fn multi_head(c: &Call<'_>) -> Outputs {
    let dtype = c.need(0)?.dtype;
    let heads = heads(c, "num_heads")?;
    let Some(q) = c.dims(0) else {
        return all(dtype, vec![None; 4]);
    };
    let (batch, length, hidden) = match *q {
        [b, s, d] => (b, s, d),
        [b, s, h, 3, size] => (b, s, product(&[h, size])?),
        _ => return Err(Why::Rank.into()),
    };
    let size = per_head(hidden, heads)?;
    // Keys of rank 4 are the cache of another attention: `[b, h, s, d]`.
    let keys = match (c.at(1), c.dims(1)) {
        (None, _) => Some(length),
        (_, Some([_, n, _] | [_, n, _, 2, _] | [_, _, n, _])) => Some(*n),
        (_, Some(_)) => return Err(Why::Rank.into()),
        (_, None) => None,
    };
    let v_size = match (c.at(2), c.dims(2)) {
        (None, _) => Some(size),
        (_, Some([_, _, hidden])) => Some(per_head(*hidden, heads)?),
        (_, Some([_, _, _, size])) => Some(*size),
        (_, Some(_)) => return Err(Why::Rank.into()),
        (_, None) => None,
    };
    let out = match v_size {
        Some(v) => Some(vec![batch, length, product(&[heads, v])?]),
        None => None,
    };
    let total = match (keys, past_length(c, 6)?) {
        // New keys are written into the slots of a cache of a fixed size.
        (_, past) if c.at(8).is_some() => past,
        (Some(keys), Some(past)) => Some(sum([past, keys])?),
        _ => None,
    };
    all(
        dtype,
        [
            out,
            total.map(|total| vec![batch, heads, total, size]),
            total
                .zip(v_size)
                .map(|(total, v)| vec![batch, heads, total, v]),
            total.map(|total| vec![batch, heads, length, total]),
        ],
    )
}

/// GroupQueryAttention: query (or packed q, k, v), key, value, past key, past value, lengths,
/// total length. The cache has the total length, or its previous one where that is longer.
pub(super) fn group_query(c: &Call<'_>) -> Outputs {
    grouped(c, 6)
}

/// SparseAttention: the same with the pattern of blocks before the lengths.
pub(super) fn sparse(c: &Call<'_>) -> Outputs {
    grouped(c, 7)
}

/// Queries that share keys; `total` is the input that holds the length with earlier tokens.
fn grouped(c: &Call<'_>, total: usize) -> Outputs {
    let dtype = c.need(0)?.dtype;
    let (heads, kv_heads) = (heads(c, "num_heads")?, heads(c, "kv_num_heads")?);
    let Some(q) = c.dims(0) else {
        return all(dtype, vec![None; 3]);
    };
    let &[batch, length, hidden] = q else {
        return Err(Why::Rank.into());
    };
    let parts = match c.at(1) {
        Some(_) => heads,
        None => sum([heads, kv_heads, kv_heads])?,
    };
    let size = per_head(hidden, parts)?;
    let out = vec![batch, length, product(&[heads, size])?];
    let total = c.at(total).and_then(Value::scalar_i64);
    let present = match (total, past_length(c, 3)?) {
        // The newest keys take the places of the oldest.
        _ if c.flag("sliding_window_cache")? => c.dims(3).map(<[usize]>::to_vec),
        (Some(total), Some(past)) => Some(vec![batch, kv_heads, dim(total)?.max(past), size]),
        _ => None,
    };
    all(dtype, [Some(out), present.clone(), present])
}

/// PagedAttention: query `[tokens, d]` of all sequences, or packed, key, value, caches of keys and
/// values in blocks, which it gives back.
pub(super) fn paged(c: &Call<'_>) -> Outputs {
    let dtype = c.need(0)?.dtype;
    let (heads, kv_heads) = (heads(c, "num_heads")?, heads(c, "kv_num_heads")?);
    let caches = [3, 4].map(|slot| c.dims(slot).map(<[usize]>::to_vec));
    let out = match c.dims(0) {
        None => None,
        Some(&[tokens, hidden]) => {
            let parts = match c.at(1) {
                Some(_) => heads,
                None => sum([heads, kv_heads, kv_heads])?,
            };
            Some(vec![tokens, product(&[heads, per_head(hidden, parts)?])?])
        }
        Some(_) => return Err(Why::Rank.into()),
    };
    all(dtype, [out].into_iter().chain(caches))
}

/// A bias of the scores gated by the query `[b, s, h · size]`: `[b, heads, s, s]`.
pub(super) fn gated_relative_position_bias(c: &Call<'_>) -> Outputs {
    let heads = heads(c, "num_heads")?;
    let dtype = c.need(0)?.dtype;
    match c.dims(0) {
        Some(&[batch, length, _]) if c.at(6).is_none() => {
            all(dtype, [Some(vec![batch, heads, length, length])])
        }
        _ => all(dtype, [None]),
    }
}
