//! Operators that create regular tensors.

use ndarray::{ArrayD, Dimension, IxDyn};

use super::array::{Array, each, from_vec};
use super::call::{Call, Given, Outputs, typed};
use super::data::Shared;
use super::shape::{self, around, axis};
use super::{Value, Why};
use crate::dtype::DType;

/// From a start to a limit (exclusive), in steps.
pub(super) fn range(c: &Call<'_>) -> Outputs {
    let [start, limit, delta] = [c.need(0)?, c.need(1)?, c.need(2)?];
    let dtype = start.dtype.or(limit.dtype).or(delta.dtype);
    if dtype.is_some_and(DType::is_float) {
        let (Some(start), Some(limit), Some(delta)) =
            (start.scalar_f64(), limit.scalar_f64(), delta.scalar_f64())
        else {
            return typed(dtype);
        };
        let count = ((limit - start) / delta).ceil().max(0.0);
        if delta == 0.0 || !count.is_finite() {
            return Err(Why::Parameter("delta").into());
        }
        // Saturates, and is too large for a dimension then.
        let count = shape::dim(count as usize)?;
        return Ok(vec![c.value(dtype, vec![count], |dims| {
            let all = (0..count).map(|i| start + i as f64 * delta);
            Some(Array::Float(from_vec(dims, all.collect())?))
        })]);
    }
    let (Some(start), Some(limit), Some(delta)) =
        (start.scalar_i64(), limit.scalar_i64(), delta.scalar_i64())
    else {
        return typed(dtype);
    };
    if delta == 0 {
        return Err(Why::Parameter("delta").into());
    }
    let span = i128::from(limit) - i128::from(start);
    let count = if (span < 0) == (delta < 0) {
        span.unsigned_abs()
            .div_ceil(u128::from(delta.unsigned_abs()))
    } else {
        0
    };
    let count = shape::dim(count)?;
    Ok(vec![c.value(dtype, vec![count], |dims| {
        let at = |i: usize| start.wrapping_add((i as i64).wrapping_mul(delta));
        Some(Array::Int(from_vec(dims, (0..count).map(at).collect())?))
    })])
}

/// A new axis of length `depth`, with the on value at the index.
pub(super) fn one_hot(c: &Call<'_>) -> Outputs {
    let (indices, depth, values) = (c.need(0)?, c.need(1)?, c.need(2)?);
    let at = c.int("axis")?.unwrap_or(-1);
    let depth = depth
        .scalar_i64()
        .or_else(|| Some(depth.scalar_f64()? as i64));
    let (Some(old), Some(depth)) = (indices.dims.as_deref(), depth) else {
        return typed(values.dtype);
    };
    let at = axis(at, old.len() + 1)?;
    let depth = shape::dim(depth)?;
    let mut dims = old.to_vec();
    dims.insert(at, depth);
    Ok(vec![c.value(values.dtype, dims, |dims| {
        let (outer, _, inner) = around(dims, at).ok()?;
        let indices = match indices.array(c.budget)? {
            Array::Float(a) => a.iter().map(|v| *v as i64).collect(),
            Array::Int(a) => a.iter().copied().collect::<Vec<_>>(),
            Array::Bool(_) => return None,
        };
        let mut hot = vec![false; outer * depth * inner];
        for (n, &index) in indices.iter().enumerate() {
            if let Some(index) = super::gather::place(index, depth) {
                hot[(n / inner * depth + index) * inner + n % inner] = true;
            }
        }
        Some(each!(values.array(c.budget)?, |a| {
            let (off, on) = (*a.first()?, *a.get(IxDyn(&[1]))?);
            let all = hot.iter().map(|hot| if *hot { on } else { off });
            from_vec(dims, all.collect())?
        }))
    })])
}

/// Ones on the `k`-th diagonal above the main one.
pub(super) fn eye_like(c: &Call<'_>) -> Outputs {
    let dtype = c.type_attribute("dtype")?.or(c.dtype(0));
    let k = c.int("k")?.unwrap_or(0);
    let Some(dims) = c.need(0)?.dims.clone() else {
        return typed(dtype);
    };
    if dims.len() != 2 {
        return Err(Why::Rank.into());
    }
    Ok(vec![c.value(dtype, dims, |dims| {
        let on = |at: &IxDyn| distance(at) == i128::from(k);
        let dims = IxDyn(dims);
        let dtype = dtype?;
        Some(if dtype == DType::Bool {
            Array::Bool(ArrayD::from_shape_fn(dims, |at| on(&at)).into_shared())
        } else if dtype.is_int() {
            Array::Int(ArrayD::from_shape_fn(dims, |at| i64::from(on(&at))).into_shared())
        } else {
            let one = |at: IxDyn| f64::from(u8::from(on(&at)));
            Array::Float(ArrayD::from_shape_fn(dims, one).into_shared())
        })
    })])
}

/// Column minus row in the last two axes.
fn distance(at: &IxDyn) -> i128 {
    let n = at.ndim();
    at[n - 1] as i128 - at[n - 2] as i128
}

/// The part of every matrix on and above (below) the diagonal `k`; the rest is 0.
pub(super) fn trilu(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    let upper = c.int("upper")?.unwrap_or(1) != 0;
    let k = match c.at(1) {
        None => Some(0),
        Some(k) => k.scalar_i64(),
    };
    if x.dims.as_ref().is_some_and(|dims| dims.len() < 2) {
        return Err(Why::Rank.into());
    }
    let keep = |at: usize, rows: usize, columns: usize, k: i64| {
        let (row, column) = (at / columns % rows, at % columns);
        let distance = column as i128 - row as i128;
        if upper {
            distance >= i128::from(k)
        } else {
            distance <= i128::from(k)
        }
    };
    c.map(x.dtype, |a| {
        let k = k?;
        let [.., rows, columns] = *a.dims() else {
            return None;
        };
        let kept = |i: usize| keep(i, rows, columns, k);
        Some(match a {
            Array::Float(a) => Array::Float(mask(&a, kept)?),
            Array::Int(a) => Array::Int(mask(&a, kept)?),
            Array::Bool(a) => Array::Bool(mask(&a, kept)?),
        })
    })
}

fn mask<T: Copy + Default>(a: &Shared<T>, keep: impl Fn(usize) -> bool) -> Option<Shared<T>> {
    let all = a.iter().enumerate();
    let all = all.map(|(i, v)| if keep(i) { *v } else { T::default() });
    from_vec(a.shape(), all.collect())
}

/// The coordinates of the nonzero elements, `[rank, n]`.
pub(super) fn non_zero(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    let dtype = Some(DType::I64);
    let Some(array) = c.array(0) else {
        return typed(dtype);
    };
    let hits: Vec<usize> = match &array {
        Array::Float(a) => hits(a, |v| *v != 0.0),
        Array::Int(a) => hits(a, |v| *v != 0),
        Array::Bool(a) => hits(a, |v| *v),
    };
    let scalar = [1];
    let old = match x.dims.as_deref() {
        Some([]) | None => &scalar[..],
        Some(dims) => dims,
    };
    let dims = vec![old.len(), hits.len()];
    Ok(vec![c.value(dtype, dims, |dims| {
        let steps = shape::strides(old);
        let axes = steps.iter().zip(old);
        let all = axes.flat_map(|(step, d)| hits.iter().map(move |at| (at / step % d) as i64));
        Some(Array::Int(from_vec(dims, all.collect())?))
    })])
}

fn hits<T>(a: &Shared<T>, test: impl Fn(&T) -> bool) -> Vec<usize> {
    let all = a.iter().enumerate().filter(|(_, v)| test(v));
    all.map(|(i, _)| i).collect()
}

/// The k greatest or least along an axis, and their indices: dimensions only.
pub(super) fn top_k(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    let along = c.int("axis")?.unwrap_or(-1);
    let k = c.number("k", 1)?;
    let dims = match (x.dims.as_deref(), k) {
        (Some(dims), Given::Known(k)) => {
            let along = axis(along, dims.len())?;
            let mut dims = dims.to_vec();
            dims[along] = shape::dim(k)?;
            Some(dims)
        }
        (_, Given::Absent) => return Err(Why::NoInput(1).into()),
        _ => None,
    };
    Ok(vec![
        Value::shaped(x.dtype, dims.clone()),
        Value::shaped(Some(DType::I64), dims),
    ])
}
