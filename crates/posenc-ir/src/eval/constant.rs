//! Constants and shapes.

use ndarray::{ArrayD, IxDyn, arr0, arr1};

use super::array::{Array, from_vec};
use super::call::{Call, Given, Outputs, typed};
use super::shape::{MAX_RANK, dim};
use super::{EvalError, Value, Why};
use crate::dtype::DType;
use crate::proto::TensorProto;
use crate::stored::Stored;
use crate::tensor::Tensor;

pub(super) fn constant(c: &Call<'_>) -> Outputs {
    if let Ok(Some(proto)) = c.node.tensor("value") {
        return Ok(vec![match stored(proto) {
            Some(tensor) => Value::from_tensor(&tensor),
            None => Value::unknown(),
        }]);
    }
    if let Some(v) = c.int("value_int")? {
        return Ok(vec![Value::int(arr0(v).into_dyn())]);
    }
    if let Some(v) = c.ints("value_ints")? {
        return Ok(vec![Value::int(arr1(v).into_dyn())]);
    }
    if let Some(v) = c.float("value_float")? {
        return Ok(vec![Value::float(arr0(v).into_dyn())]);
    }
    if let Ok(Some(v)) = c.node.floats("value_floats") {
        let v: Vec<f64> = v.iter().map(|v| f64::from(*v)).collect();
        return Ok(vec![Value::float(arr1(&v).into_dyn())]);
    }
    Ok(Vec::new())
}

/// The tensor of an attribute; `None` where its elements cannot be read.
fn stored(proto: &TensorProto) -> Option<Tensor> {
    Stored::from_proto(proto).ok()?.tensor().ok()
}

pub(super) fn constant_of_shape(c: &Call<'_>) -> Outputs {
    let fill = match c
        .node
        .tensor("value")
        .map_err(|_| Why::Attribute("value"))?
    {
        Some(proto) => Some(stored(proto).ok_or(Why::Attribute("value"))?),
        None => None,
    };
    let dtype = fill.as_ref().map_or(DType::F32, Tensor::dtype);
    c.need(0)?;
    let Given::Known(shape) = c.input_list(0) else {
        return typed(Some(dtype));
    };
    let dims = to_dims(&shape)?;
    Ok(vec![c.value(Some(dtype), dims, |dims| {
        let dims = IxDyn(dims);
        let Some(fill) = fill else {
            return Some(Array::Float(ArrayD::zeros(dims).into_shared()));
        };
        Some(if dtype == DType::Bool {
            Array::Bool(ArrayD::from_elem(dims, fill.get_i64(0)? != 0).into_shared())
        } else if dtype.is_int() {
            Array::Int(ArrayD::from_elem(dims, fill.get_i64(0)?).into_shared())
        } else {
            Array::Float(ArrayD::from_elem(dims, fill.get_f64(0)?).into_shared())
        })
    })])
}

/// Dimensions from a list of numbers that must not be negative.
pub(super) fn to_dims(shape: &[i64]) -> Result<Vec<usize>, EvalError> {
    if shape.len() > MAX_RANK {
        return Err(Why::Rank.into());
    }
    shape.iter().map(|d| dim(*d)).collect()
}

/// The dimensions of input 0, or since opset 15 a range of them.
pub(super) fn shape_of(c: &Call<'_>) -> Outputs {
    let Some(dims) = c.need(0)?.dims.as_deref() else {
        return typed(Some(DType::I64));
    };
    let rank = dims.len() as i64;
    let clamped = |at: i64| {
        let at = if at < 0 { at.saturating_add(rank) } else { at };
        at.clamp(0, rank) as usize
    };
    let start = clamped(c.int("start")?.unwrap_or(0));
    let end = clamped(c.int("end")?.unwrap_or(rank)).max(start);
    let list: Vec<i64> = dims[start..end].iter().map(|d| *d as i64).collect();
    Ok(vec![c.value(Some(DType::I64), vec![list.len()], |dims| {
        Some(Array::Int(from_vec(dims, list)?))
    })])
}

pub(super) fn size(c: &Call<'_>) -> Outputs {
    let n = c.need(0)?.elements().and_then(|n| i64::try_from(n).ok());
    Ok(vec![c.value(Some(DType::I64), Vec::new(), |_| {
        Some(Array::Int(arr0(n?).into_dyn().into_shared()))
    })])
}
