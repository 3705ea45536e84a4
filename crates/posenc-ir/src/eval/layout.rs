//! Operators that change the dimensions and keep the elements.

use std::sync::Arc;

use ndarray::IxDyn;

use super::array::{Array, each};
use super::binary::spread;
use super::call::{Call, Given, Outputs, typed};
use super::constant::to_dims;
use super::data::Data;
use super::shape::{self, MAX_RANK, axis, axis_set, broadcast, count, product};
use super::value::Value;
use super::{EvalError, Why};
use crate::tensor::Tensor;

/// The value with other dimensions and its elements in the same order; a stored constant is not
/// converted.
fn reshaped(value: &Value, dims: Vec<usize>) -> Result<Value, EvalError> {
    if let Some(old) = &value.dims
        && shape::elements(old) != shape::elements(&dims)
    {
        return Err(Why::Shapes.into());
    }
    let data = match value.data.as_deref() {
        Some(Data::Stored(t)) => {
            Tensor::new(t.dtype(), dims.clone(), t.bytes().clone()).map(Data::Stored)
        }
        Some(Data::Float(a)) => Array::Float(a.clone()).reshaped(&dims).map(Data::from),
        Some(Data::Int(a)) => Array::Int(a.clone()).reshaped(&dims).map(Data::from),
        Some(Data::Bool(a)) => Array::Bool(a.clone()).reshaped(&dims).map(Data::from),
        None => None,
    };
    Ok(Value {
        data: data.map(Arc::new),
        ..Value::shaped(value.dtype, Some(dims))
    })
}

/// A 0 in the shape copies the dimension at its index (unless `allowzero`), a −1 is inferred.
pub(super) fn reshape(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    let wanted = match c.list("shape", 1)? {
        Given::Known(wanted) => wanted,
        Given::Unknown => return typed(x.dtype),
        Given::Absent => return Err(Why::NoInput(1).into()),
    };
    let literal = c.flag("allowzero")?;
    let copies = !literal && wanted.contains(&0);
    let infers = wanted.contains(&-1);
    if wanted.len() > MAX_RANK {
        return Err(Why::Rank.into());
    }
    if x.dims.is_none() && (copies || infers) {
        return typed(x.dtype);
    }
    let old = x.dims.as_deref().unwrap_or_default();
    let mut dims = Vec::with_capacity(wanted.len());
    let mut open = None;
    for (i, &w) in wanted.iter().enumerate() {
        dims.push(match w {
            -1 if open.replace(i).is_some() => return Err(Why::Parameter("shape").into()),
            -1 => 1,
            0 if !literal => *old.get(i).ok_or(Why::Parameter("shape"))?,
            w => shape::dim(w)?,
        });
    }
    if let Some(i) = open {
        let (all, rest) = (count(old)?, count(&dims)?);
        if rest == 0 || all % rest != 0 {
            return Err(Why::Shapes.into());
        }
        dims[i] = all / rest;
    }
    Ok(vec![reshaped(x, dims)?])
}

/// To two dimensions: the product of those before the axis, and of the others.
pub(super) fn flatten(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    let Some(dims) = x.dims.as_deref() else {
        return typed(x.dtype);
    };
    let at = c.int("axis")?.unwrap_or(1);
    let rank = dims.len();
    // The axis may be the rank.
    let at = if at == rank as i64 {
        rank
    } else {
        axis(at, rank)?
    };
    let (rows, columns) = dims.split_at(at);
    let dims = vec![product(rows)?, product(columns)?];
    Ok(vec![reshaped(x, dims)?])
}

pub(super) fn squeeze(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    let axes = c.list("axes", 1)?;
    let Some(dims) = x.dims.as_deref() else {
        return typed(x.dtype);
    };
    let gone: Vec<bool> = match axes {
        Given::Unknown => return typed(x.dtype),
        Given::Absent => dims.iter().map(|d| *d == 1).collect(),
        Given::Known(axes) => axis_set(&axes, dims.len())?,
    };
    if dims.iter().zip(&gone).any(|(d, gone)| *gone && *d != 1) {
        return Err(Why::Shapes.into());
    }
    let kept = dims.iter().zip(gone).filter(|(_, gone)| !gone);
    Ok(vec![reshaped(x, kept.map(|(d, _)| *d).collect())?])
}

pub(super) fn unsqueeze(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    let axes = match c.list("axes", 1)? {
        Given::Known(axes) => axes,
        Given::Unknown => return typed(x.dtype),
        Given::Absent => return Err(Why::NoInput(1).into()),
    };
    let Some(dims) = x.dims.as_deref() else {
        return typed(x.dtype);
    };
    let rank = dims.len() + axes.len();
    if rank > MAX_RANK {
        return Err(Why::Rank.into());
    }
    let mut rest = dims.iter().copied();
    let new = axis_set(&axes, rank)?;
    let dims = new
        .iter()
        .map(|new| if *new { Some(1) } else { rest.next() });
    Ok(vec![reshaped(x, dims.map(|d| d.unwrap_or(1)).collect())?])
}

pub(super) fn transpose(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    let perm = c.ints("perm")?;
    let Some(dims) = x.dims.as_deref() else {
        return typed(x.dtype);
    };
    let rank = dims.len();
    let order: Vec<usize> = match perm {
        None => (0..rank).rev().collect(),
        Some(perm) if perm.len() == rank => {
            axis_set(perm, rank)?;
            perm.iter()
                .map(|a| axis(*a, rank))
                .collect::<Result<_, EvalError>>()?
        }
        Some(_) => return Err(Why::Attribute("perm").into()),
    };
    let dims = order.iter().map(|i| dims[*i]).collect();
    Ok(vec![c.value(x.dtype, dims, |_| {
        let order = IxDyn(&order);
        Some(each!(c.array(0)?, |a| a.permuted_axes(order)))
    })])
}

/// Broadcasts to a shape; a 1 in the shape keeps the dimension.
pub(super) fn expand(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    let wanted = match c.input_list(1) {
        Given::Known(wanted) => to_dims(&wanted)?,
        Given::Unknown => return typed(x.dtype),
        Given::Absent => return Err(Why::NoInput(1).into()),
    };
    let Some(dims) = x.dims.as_deref() else {
        return typed(x.dtype);
    };
    let dims = broadcast(dims, &wanted)?;
    Ok(vec![
        c.value(x.dtype, dims, |dims| spread(c.array(0)?, dims)),
    ])
}

/// Blocks of channels to space: `[n, c, h, w]` to `[n, c/b², h·b, w·b]`.
pub(super) fn depth_to_space(c: &Call<'_>) -> Outputs {
    block(c, |[n, depth, h, w], b| {
        let square = b.checked_mul(b).filter(|s| *s > 0 && depth % s == 0);
        let depth = depth / square.ok_or(Why::Shapes)?;
        Ok(vec![n, depth, product(&[h, b])?, product(&[w, b])?])
    })
}

/// Blocks of space to channels: `[n, c, h, w]` to `[n, c·b², h/b, w/b]`.
pub(super) fn space_to_depth(c: &Call<'_>) -> Outputs {
    block(c, |[n, depth, h, w], b| {
        if b == 0 || h % b != 0 || w % b != 0 {
            return Err(Why::Shapes.into());
        }
        Ok(vec![n, product(&[depth, b, b])?, h / b, w / b])
    })
}

fn block(
    c: &Call<'_>,
    dims: impl FnOnce([usize; 4], usize) -> Result<Vec<usize>, EvalError>,
) -> Outputs {
    let x = c.need(0)?;
    let size = c.int("blocksize")?.ok_or(Why::Attribute("blocksize"))?;
    let Some(old) = x.dims.as_deref() else {
        return typed(x.dtype);
    };
    let old = <[usize; 4]>::try_from(old).map_err(|_| Why::Rank)?;
    let dims = dims(old, shape::dim(size)?)?;
    Ok(vec![Value::shaped(x.dtype, Some(dims))])
}
