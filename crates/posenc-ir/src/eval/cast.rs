//! Changes of element type.

use super::array::Array;
use super::call::{Call, Outputs};
use super::{EvalError, Value, Why};
use crate::dtype::DType;

pub(super) fn cast(c: &Call<'_>) -> Outputs {
    let to = c.type_attribute("to")?.ok_or(Why::Attribute("to"))?;
    c.map(Some(to), |a| convert(a, c.dtype(0), to))
}

/// To the type of input 1.
pub(super) fn cast_like(c: &Call<'_>) -> Outputs {
    match c.need(1)?.dtype {
        Some(to) => c.map(Some(to), |a| convert(a, c.dtype(0), to)),
        None => c.map(None, |_| None),
    }
}

/// Floats are not rounded to narrower floats. From floats to integers, values are truncated toward
/// zero and saturate at the range of the type; integers wrap.
fn convert(array: Array, from: Option<DType>, to: DType) -> Option<Array> {
    Some(if to == DType::Bool {
        Array::Bool(match array {
            Array::Float(a) => a.mapv(|x| x != 0.0).into_shared(),
            Array::Int(a) => a.mapv(|x| x != 0).into_shared(),
            Array::Bool(a) => a,
        })
    } else if to.is_float() {
        Array::Float(match array {
            Array::Float(a) => a,
            Array::Int(a) => a.mapv(|x| x as f64).into_shared(),
            Array::Bool(a) => a.mapv(|x| f64::from(u8::from(x))).into_shared(),
        })
    } else if to.is_int() {
        let (low, high) = int_range(to);
        Array::Int(match array {
            Array::Float(a) => {
                let whole = |x: f64| rounded_to_f32(x, from) as i64;
                a.mapv(|x| whole(x).clamp(low, high)).into_shared()
            }
            Array::Int(a) => a.mapv(|x| wrap(x, to)).into_shared(),
            Array::Bool(a) => a.mapv(i64::from).into_shared(),
        })
    } else {
        return None;
    })
}

/// The number rounded to f32, as the graph computes it, for operators with steps: values that differ
/// from a whole number only in the last digits of f64 become whole (`log(64) / log(2)`).
pub(super) fn rounded_to_f32(x: f64, dtype: Option<DType>) -> f64 {
    match dtype {
        Some(DType::F64) => x,
        _ => f64::from(x as f32),
    }
}

/// The least and greatest number of an integer type, within i64.
pub(super) fn int_range(dtype: DType) -> (i64, i64) {
    match dtype {
        DType::U8 => (0, u8::MAX.into()),
        DType::I8 => (i8::MIN.into(), i8::MAX.into()),
        DType::U16 => (0, u16::MAX.into()),
        DType::I16 => (i16::MIN.into(), i16::MAX.into()),
        DType::U32 => (0, u32::MAX.into()),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::U4 => (0, 15),
        DType::I4 => (-8, 7),
        DType::U2 => (0, 3),
        DType::I2 => (-2, 1),
        DType::U64 => (0, i64::MAX),
        _ => (i64::MIN, i64::MAX),
    }
}

fn wrap(x: i64, to: DType) -> i64 {
    match to {
        DType::U8 => i64::from(x as u8),
        DType::I8 => i64::from(x as i8),
        DType::U16 => i64::from(x as u16),
        DType::I16 => i64::from(x as i16),
        DType::U32 => i64::from(x as u32),
        DType::I32 => i64::from(x as i32),
        DType::U4 => x & 15,
        DType::U2 => x & 3,
        DType::I4 => (x << 60) >> 60,
        DType::I2 => (x << 62) >> 62,
        _ => x,
    }
}

/// The element type of an attribute, or a default.
pub(super) fn element_type(
    c: &Call<'_>,
    name: &'static str,
    or: DType,
) -> Result<DType, EvalError> {
    Ok(c.type_attribute(name)?.unwrap_or(or))
}

/// The type of attribute `dtype`, else that of input 0; the content is unknown.
pub(super) fn random_like(c: &Call<'_>) -> Outputs {
    let dtype = c.type_attribute("dtype")?.or(c.dtype(0));
    c.map(dtype, |_| None)
}

/// A random tensor with a shape from an attribute; the content is unknown.
pub(super) fn random(c: &Call<'_>) -> Outputs {
    let dtype = element_type(c, "dtype", DType::F32)?;
    let shape = c.ints("shape")?.ok_or(Why::Attribute("shape"))?;
    let dims: Result<Vec<usize>, EvalError> = shape.iter().map(|d| super::shape::dim(*d)).collect();
    Ok(vec![Value::shaped(Some(dtype), Some(dims?))])
}
