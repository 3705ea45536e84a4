//! Joining and splitting tensors along an axis.

use ndarray::{ArrayD, Axis, IxDyn, Slice};

use super::array::{Array, each};
use super::call::{Call, Given, Outputs, typed};
use super::data::Shared;
use super::shape::{self, axis};
use super::{EvalError, Value, Why};

pub(super) fn concat(c: &Call<'_>) -> Outputs {
    let first = c.need(0)?;
    let along = match c.int("axis")? {
        Some(along) => along,
        None => return Err(Why::Attribute("axis").into()),
    };
    let dtype = c.inputs.iter().flatten().find_map(|v| v.dtype);
    let Some(dims) = first.dims.as_deref() else {
        return typed(dtype);
    };
    let along = axis(along, dims.len())?;
    let mut total = Some(0usize);
    for value in c.inputs.iter().flatten() {
        let Some(other) = value.dims.as_deref() else {
            total = None;
            continue;
        };
        if other.len() != dims.len() {
            return Err(Why::Rank.into());
        }
        let fits = |i: usize| i == along || other[i] == dims[i];
        if !(0..dims.len()).all(fits) {
            return Err(Why::Shapes.into());
        }
        total = match total {
            Some(n) => Some(shape::sum([n, other[along]])?),
            None => None,
        };
    }
    let Some(total) = total else {
        return typed(dtype);
    };
    let mut dims = dims.to_vec();
    dims[along] = total;
    Ok(vec![
        c.value(dtype, dims, |dims| join(c.arrays()?, dims, along)),
    ])
}

pub(super) fn join(arrays: Vec<Array>, dims: &[usize], along: usize) -> Option<Array> {
    match arrays.first()? {
        Array::Float(_) => {
            let all: Option<Vec<_>> = arrays.into_iter().map(Array::floats).collect();
            Some(Array::Float(join_all(&all?, dims, along)?))
        }
        Array::Int(_) => {
            let all: Option<Vec<_>> = arrays.into_iter().map(Array::ints).collect();
            Some(Array::Int(join_all(&all?, dims, along)?))
        }
        Array::Bool(_) => {
            let all: Option<Vec<_>> = arrays.into_iter().map(Array::bools).collect();
            Some(Array::Bool(join_all(&all?, dims, along)?))
        }
    }
}

fn join_all<T: Clone>(parts: &[Shared<T>], dims: &[usize], along: usize) -> Option<Shared<T>> {
    let parts: Vec<_> = parts.iter().map(|p| p.as_standard_layout()).collect();
    let count: usize = dims[..along].iter().product();
    let mut all = Vec::with_capacity(dims.iter().product());
    for index in 0..count {
        for part in &parts {
            let length = part.len() / count;
            let elements = part.as_slice()?;
            all.extend_from_slice(&elements[index * length..(index + 1) * length]);
        }
    }
    let whole = ArrayD::from_shape_vec(IxDyn(dims), all).ok()?;
    Some(whole.into_shared())
}

/// The lengths are an attribute before opset 13 and input 1 since; without them, the parts have equal
/// lengths, the last one (since opset 18) possibly less.
pub(super) fn split(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    let unknown = || vec![Value::shaped(x.dtype, None); c.outputs()];
    let Some(dims) = x.dims.as_deref() else {
        return Ok(unknown());
    };
    let along = axis(c.int("axis")?.unwrap_or(0), dims.len())?;
    let total = dims[along];
    let lengths = match c.list("split", 1)? {
        Given::Unknown => return Ok(unknown()),
        Given::Known(lengths) => lengths
            .into_iter()
            .map(shape::dim)
            .collect::<Result<Vec<_>, EvalError>>()?,
        Given::Absent => {
            let parts = match c.int("num_outputs")? {
                Some(n) if n as usize != c.outputs() => {
                    return Err(Why::Attribute("num_outputs").into());
                }
                _ => c.outputs(),
            };
            equal_parts(total, parts)?
        }
    };
    if shape::sum(lengths.iter().copied())? != total {
        return Err(Why::Parameter("split").into());
    }
    let whole = c.array(0);
    let mut start = 0;
    let mut out = Vec::with_capacity(lengths.len());
    for length in lengths {
        let mut dims = dims.to_vec();
        dims[along] = length;
        out.push(c.value(x.dtype, dims, |_| {
            Some(cut(whole.clone()?, along, start, start + length))
        }));
        start += length;
    }
    Ok(out)
}

fn equal_parts(total: usize, parts: usize) -> Result<Vec<usize>, EvalError> {
    if parts == 0 {
        return Err(Why::Parameter("split").into());
    }
    let each = total.div_ceil(parts);
    let last = each
        .checked_mul(parts - 1)
        .and_then(|rest| total.checked_sub(rest));
    let mut lengths = vec![each; parts];
    lengths[parts - 1] = last.ok_or(Why::Parameter("split"))?;
    Ok(lengths)
}

/// A contiguous range of one axis; shares the elements.
pub(super) fn cut(array: Array, along: usize, start: usize, end: usize) -> Array {
    let range = Slice::new(start as isize, Some(end as isize), 1);
    each!(array, |a| {
        let mut a = a;
        a.slice_axis_inplace(Axis(along), range);
        a
    })
}
