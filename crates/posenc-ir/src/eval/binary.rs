//! Operators of two and more operands, element by element, with broadcasting.

use ndarray::{ArrayD, Axis, IxDyn, Zip};

use super::array::{Array, each_pair};
use super::call::{Call, Outputs, typed};
use super::data::Shared;
use super::shape::broadcast;
use super::{EvalError, Value};
use crate::dtype::DType;

/// Rows of so many elements are worth a loop of their own.
const LONG_ROW: usize = 16;

/// Applies `f` to every pair of elements.
pub(super) fn zip<A: Copy, B: Copy, C: Copy>(
    a: &Shared<A>,
    b: &Shared<B>,
    dims: &[usize],
    f: impl Fn(A, B) -> C,
) -> Option<Shared<C>> {
    let (a, b) = (a.broadcast(dims)?, b.broadcast(dims)?);
    let last = dims.len().checked_sub(1);
    let Some(last) = last.filter(|axis| dims[*axis] >= LONG_ROW) else {
        let out = Zip::from(a).and(b).map_collect(|x, y| f(*x, *y));
        return Some(out.into_shared());
    };
    let mut out = Vec::with_capacity(a.len());
    for (x, y) in a.lanes(Axis(last)).into_iter().zip(b.lanes(Axis(last))) {
        match (x.to_slice(), y.to_slice()) {
            (Some(x), Some(y)) => out.extend(x.iter().zip(y).map(|(x, y)| f(*x, *y))),
            _ => out.extend(x.iter().zip(&y).map(|(x, y)| f(*x, *y))),
        }
    }
    let out = ArrayD::from_shape_vec(IxDyn(dims), out).ok()?;
    Some(out.into_shared())
}

/// The common dimensions of all inputs; `None` where any has unknown ones.
pub(super) fn common_dims(c: &Call<'_>) -> Result<Option<Vec<usize>>, EvalError> {
    let mut dims = Vec::new();
    for value in c.inputs.iter().flatten() {
        match &value.dims {
            Some(d) => dims = broadcast(&dims, d)?,
            None => return Ok(None),
        }
    }
    Ok(Some(dims))
}

fn binary(
    c: &Call<'_>,
    dtype: Option<DType>,
    compute: impl FnOnce(Array, Array, &[usize]) -> Option<Array>,
) -> Outputs {
    c.need(0)?;
    c.need(1)?;
    let Some(dims) = common_dims(c)? else {
        return typed(dtype);
    };
    Ok(vec![c.value(dtype, dims, |dims| {
        compute(c.array(0)?, c.array(1)?, dims)
    })])
}

fn arithmetic(c: &Call<'_>, f: impl Fn(f64, f64) -> f64, g: impl Fn(i64, i64) -> i64) -> Outputs {
    binary(c, operand_type(c), |a, b, dims| match (a, b) {
        (Array::Float(a), Array::Float(b)) => Some(Array::Float(zip(&a, &b, dims, f)?)),
        (Array::Int(a), Array::Int(b)) => Some(Array::Int(zip(&a, &b, dims, g)?)),
        _ => None,
    })
}

/// The type that both operands have.
fn operand_type(c: &Call<'_>) -> Option<DType> {
    c.dtype(0).or(c.dtype(1))
}

pub(super) fn add(c: &Call<'_>) -> Outputs {
    arithmetic(c, |a, b| a + b, i64::wrapping_add)
}

pub(super) fn sub(c: &Call<'_>) -> Outputs {
    arithmetic(c, |a, b| a - b, i64::wrapping_sub)
}

pub(super) fn mul(c: &Call<'_>) -> Outputs {
    arithmetic(c, |a, b| a * b, i64::wrapping_mul)
}

/// Integers truncate toward zero; with a divisor of zero, the data is unknown.
pub(super) fn div(c: &Call<'_>) -> Outputs {
    binary(c, operand_type(c), |a, b, dims| match (a, b) {
        (Array::Float(a), Array::Float(b)) => Some(Array::Float(zip(&a, &b, dims, |a, b| a / b)?)),
        (Array::Int(a), Array::Int(b)) if !b.iter().any(|v| *v == 0) => {
            Some(Array::Int(zip(&a, &b, dims, i64::wrapping_div)?))
        }
        _ => None,
    })
}

/// The remainder with the sign of the divisor, or with `fmod` that of the dividend.
pub(super) fn modulo(c: &Call<'_>) -> Outputs {
    let truncated = c.flag("fmod")?;
    binary(c, operand_type(c), |a, b, dims| match (a, b) {
        (Array::Float(a), Array::Float(b)) => {
            let f = |a: f64, b: f64| {
                let r = a % b;
                if truncated || r == 0.0 || (r < 0.0) == (b < 0.0) {
                    r
                } else {
                    r + b
                }
            };
            Some(Array::Float(zip(&a, &b, dims, f)?))
        }
        (Array::Int(a), Array::Int(b)) if !b.iter().any(|v| *v == 0) => {
            let f = |a: i64, b: i64| {
                let r = a.wrapping_rem(b);
                if truncated || r == 0 || (r < 0) == (b < 0) {
                    r
                } else {
                    r.wrapping_add(b)
                }
            };
            Some(Array::Int(zip(&a, &b, dims, f)?))
        }
        _ => None,
    })
}

/// Base and exponent may have different types; the result has that of the base.
pub(super) fn pow(c: &Call<'_>) -> Outputs {
    binary(c, c.dtype(0), |a, b, dims| {
        Some(match (a, b) {
            (Array::Float(a), Array::Float(b)) => Array::Float(zip(&a, &b, dims, f64::powf)?),
            (Array::Float(a), Array::Int(b)) => {
                Array::Float(zip(&a, &b, dims, |a, b| a.powf(b as f64))?)
            }
            (Array::Int(a), Array::Int(b)) => Array::Int(zip(&a, &b, dims, integer_power)?),
            (Array::Int(a), Array::Float(b)) => {
                Array::Int(zip(&a, &b, dims, |a, b| (a as f64).powf(b) as i64)?)
            }
            _ => return None,
        })
    })
}

fn integer_power(base: i64, exponent: i64) -> i64 {
    match u32::try_from(exponent) {
        Ok(n) => base.wrapping_pow(n),
        Err(_) => (base as f64).powf(exponent as f64) as i64,
    }
}

fn logic(c: &Call<'_>, f: impl Fn(bool, bool) -> bool) -> Outputs {
    binary(c, Some(DType::Bool), |a, b, dims| {
        Some(Array::Bool(zip(&a.bools()?, &b.bools()?, dims, f)?))
    })
}

pub(super) fn and(c: &Call<'_>) -> Outputs {
    logic(c, |a, b| a & b)
}

pub(super) fn or(c: &Call<'_>) -> Outputs {
    logic(c, |a, b| a | b)
}

pub(super) fn xor(c: &Call<'_>) -> Outputs {
    logic(c, |a, b| a ^ b)
}

fn bits(c: &Call<'_>, f: impl Fn(i64, i64) -> i64) -> Outputs {
    binary(c, operand_type(c), |a, b, dims| {
        Some(Array::Int(zip(&a.ints()?, &b.ints()?, dims, f)?))
    })
}

pub(super) fn bitwise_and(c: &Call<'_>) -> Outputs {
    bits(c, |a, b| a & b)
}

pub(super) fn bitwise_or(c: &Call<'_>) -> Outputs {
    bits(c, |a, b| a | b)
}

pub(super) fn bitwise_xor(c: &Call<'_>) -> Outputs {
    bits(c, |a, b| a ^ b)
}

fn compare(
    c: &Call<'_>,
    f: impl Fn(f64, f64) -> bool,
    g: impl Fn(i64, i64) -> bool,
    h: impl Fn(bool, bool) -> bool,
) -> Outputs {
    binary(c, Some(DType::Bool), |a, b, dims| {
        Some(Array::Bool(match (a, b) {
            (Array::Float(a), Array::Float(b)) => zip(&a, &b, dims, f)?,
            (Array::Int(a), Array::Int(b)) => zip(&a, &b, dims, g)?,
            (Array::Bool(a), Array::Bool(b)) => zip(&a, &b, dims, h)?,
            _ => return None,
        }))
    })
}

pub(super) fn equal(c: &Call<'_>) -> Outputs {
    compare(c, |a, b| a == b, |a, b| a == b, |a, b| a == b)
}

pub(super) fn less(c: &Call<'_>) -> Outputs {
    compare(c, |a, b| a < b, |a, b| a < b, |a, b| !a & b)
}

pub(super) fn less_or_equal(c: &Call<'_>) -> Outputs {
    compare(c, |a, b| a <= b, |a, b| a <= b, |a, b| a <= b)
}

pub(super) fn greater(c: &Call<'_>) -> Outputs {
    compare(c, |a, b| a > b, |a, b| a > b, |a, b| a & !b)
}

pub(super) fn greater_or_equal(c: &Call<'_>) -> Outputs {
    compare(c, |a, b| a >= b, |a, b| a >= b, |a, b| a >= b)
}

/// Any number of operands, folded from the left.
fn fold(
    c: &Call<'_>,
    f: impl Fn(f64, f64) -> f64 + Copy,
    g: impl Fn(i64, i64) -> i64 + Copy,
) -> Outputs {
    c.need(0)?;
    let dtype = c.inputs.iter().flatten().find_map(|v| v.dtype);
    let Some(dims) = common_dims(c)? else {
        return typed(dtype);
    };
    Ok(vec![c.value(dtype, dims, |dims| {
        let mut arrays = c.arrays()?.into_iter();
        let mut total = spread(arrays.next()?, dims)?;
        for next in arrays {
            total = match (total, next) {
                (Array::Float(a), Array::Float(b)) => Array::Float(zip(&a, &b, dims, f)?),
                (Array::Int(a), Array::Int(b)) => Array::Int(zip(&a, &b, dims, g)?),
                _ => return None,
            };
        }
        Some(total)
    })])
}

/// The array repeated to fill `dims`.
pub(super) fn spread(array: Array, dims: &[usize]) -> Option<Array> {
    if array.dims() == dims {
        return Some(array);
    }
    Some(super::array::each!(array, |a| {
        a.broadcast(dims)?.to_owned().into_shared()
    }))
}

pub(super) fn sum(c: &Call<'_>) -> Outputs {
    fold(c, |a, b| a + b, i64::wrapping_add)
}

pub(super) fn mean(c: &Call<'_>) -> Outputs {
    let n = c.inputs.iter().flatten().count() as f64;
    let mut out = fold(c, |a, b| a + b, i64::wrapping_add)?;
    if let Some(total) = out.pop() {
        let mean = total.array(c.budget).and_then(|a| {
            let a = a.floats()?;
            Some(Array::Float(a.mapv(|x| x / n).into_shared()))
        });
        out.push(match mean {
            Some(mean) => Value::of(total.dtype, mean),
            None => total.without_data(),
        });
    }
    Ok(out)
}

/// The smaller number; NaN where either is.
fn lower(a: f64, b: f64) -> f64 {
    if a.is_nan() || a < b { a } else { b }
}

/// The larger number; NaN where either is.
fn upper(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

pub(super) fn min(c: &Call<'_>) -> Outputs {
    fold(c, lower, i64::min)
}

pub(super) fn max(c: &Call<'_>) -> Outputs {
    fold(c, upper, i64::max)
}

/// The bounds are attributes before opset 11 and inputs since.
pub(super) fn clip(c: &Call<'_>) -> Outputs {
    let (low, high) = (c.float("min")?, c.float("max")?);
    let known = [1, 2].map(|i| c.at(i).map(|v| (v.scalar_f64(), v.scalar_i64())));
    c.map(c.dtype(0), |a| {
        let bound = |i: usize| match known[i] {
            None => Some(None),
            Some((Some(f), n)) => Some(Some((f, n))),
            Some((None, _)) => None,
        };
        let (lo, hi) = (bound(0)?, bound(1)?);
        match a {
            Array::Float(a) => {
                let lo = lo.map(|v| v.0).or(low).unwrap_or(f64::NEG_INFINITY);
                let hi = hi.map(|v| v.0).or(high).unwrap_or(f64::INFINITY);
                let f = |x: f64| if x.is_nan() { x } else { x.max(lo).min(hi) };
                Some(Array::Float(a.mapv(f).into_shared()))
            }
            Array::Int(a) => {
                let lo = lo.map_or(Some(i64::MIN), |v| v.1)?;
                let hi = hi.map_or(Some(i64::MAX), |v| v.1)?;
                Some(Array::Int(a.mapv(|x| x.max(lo).min(hi)).into_shared()))
            }
            Array::Bool(_) => None,
        }
    })
}

/// `Where`; data needs all three inputs, whatever the condition.
pub(super) fn choose(c: &Call<'_>) -> Outputs {
    for i in 0..3 {
        c.need(i)?;
    }
    let dtype = c.dtype(1).or(c.dtype(2));
    let Some(dims) = common_dims(c)? else {
        return typed(dtype);
    };
    Ok(vec![c.value(dtype, dims, |dims| {
        let condition = c.array(0)?.bools()?;
        each_pair!(c.array(1)?, c.array(2)?, |a, b| {
            let condition = condition.broadcast(dims)?;
            let out = Zip::from(condition)
                .and(a.broadcast(dims)?)
                .and(b.broadcast(dims)?)
                .map_collect(|c, a, b| if *c { *a } else { *b });
            out.into_shared()
        })
    })])
}

/// Type and dimensions only; the content is unknown.
pub(super) fn opaque(c: &Call<'_>) -> Outputs {
    binary(c, operand_type(c), |_, _, _| None)
}
