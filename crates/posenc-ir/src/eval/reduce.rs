//! Reductions over axes.

use super::Value;
use super::array::{Array, flat, from_vec};
use super::call::{Call, Given, Outputs, typed};
use super::data::Shared;
use super::shape::{axis_set, offsets, strides};

/// How elements are combined.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sum,
    Mean,
    Max,
    Min,
    Prod,
    L1,
    L2,
    SumSquare,
    LogSum,
    LogSumExp,
}

pub(super) fn sum(c: &Call<'_>) -> Outputs {
    reduce(c, Kind::Sum)
}

pub(super) fn mean(c: &Call<'_>) -> Outputs {
    reduce(c, Kind::Mean)
}

pub(super) fn max(c: &Call<'_>) -> Outputs {
    reduce(c, Kind::Max)
}

pub(super) fn min(c: &Call<'_>) -> Outputs {
    reduce(c, Kind::Min)
}

pub(super) fn prod(c: &Call<'_>) -> Outputs {
    reduce(c, Kind::Prod)
}

pub(super) fn l1(c: &Call<'_>) -> Outputs {
    reduce(c, Kind::L1)
}

pub(super) fn l2(c: &Call<'_>) -> Outputs {
    reduce(c, Kind::L2)
}

pub(super) fn sum_square(c: &Call<'_>) -> Outputs {
    reduce(c, Kind::SumSquare)
}

pub(super) fn log_sum(c: &Call<'_>) -> Outputs {
    reduce(c, Kind::LogSum)
}

pub(super) fn log_sum_exp(c: &Call<'_>) -> Outputs {
    reduce(c, Kind::LogSumExp)
}

/// The axes are an attribute, or input 1 since opset 18 (13 for the sum); all where none are given.
fn reduce(c: &Call<'_>, kind: Kind) -> Outputs {
    let x = c.need(0)?;
    let keep = c.int("keepdims")?.unwrap_or(1) != 0;
    let keeps_all = c.flag("noop_with_empty_axes")?;
    let axes = c.list("axes", 1)?;
    let Some(dims) = x.dims.as_deref() else {
        return typed(x.dtype);
    };
    let gone: Vec<bool> = match axes {
        Given::Unknown => return typed(x.dtype),
        Given::Known(axes) if !axes.is_empty() => axis_set(&axes, dims.len())?,
        // Every element is reduced alone.
        _ if keeps_all => vec![false; dims.len()],
        _ => vec![true; dims.len()],
    };
    let axes = dims.iter().zip(&gone);
    let result: Vec<usize> = axes
        .filter(|(_, gone)| keep || !**gone)
        .map(|(d, gone)| if *gone { 1 } else { *d })
        .collect();
    Ok(vec![c.value(x.dtype, result, |result| {
        Some(match c.array(0)? {
            Array::Float(a) => Array::Float(fold(&a, &gone, result, |all| float(kind, all))?),
            Array::Int(a) => Array::Int(fold(&a, &gone, result, |all| int(kind, all))?),
            Array::Bool(a) => Array::Bool(fold(&a, &gone, result, |all| match kind {
                Kind::Max => Some(all.fold(false, |a, b| a | b)),
                Kind::Min => Some(all.fold(true, |a, b| a & b)),
                _ => None,
            })?),
        })
    })])
}

/// Folds the elements along the reduced axes; `None` where the fold gives `None`.
fn fold<T: Copy>(
    a: &Shared<T>,
    gone: &[bool],
    result: &[usize],
    f: impl Fn(&mut dyn Iterator<Item = T>) -> Option<T>,
) -> Option<Shared<T>> {
    let all = flat(a);
    let steps = strides(a.shape());
    let part = |which: bool| {
        let axes = (0..gone.len()).filter(|i| gone[*i] == which);
        let (dims, steps): (Vec<usize>, Vec<isize>) =
            axes.map(|i| (a.shape()[i], steps[i] as isize)).unzip();
        offsets(&dims, &steps, 0)
    };
    let (kept, folded) = (part(false), part(true));
    let out = kept
        .iter()
        .map(|base| f(&mut folded.iter().map(|o| all[base + o])));
    from_vec(result, out.collect::<Option<Vec<T>>>()?)
}

fn float(kind: Kind, all: &mut dyn Iterator<Item = f64>) -> Option<f64> {
    Some(match kind {
        Kind::Sum => all.sum(),
        Kind::Prod => all.product(),
        Kind::L1 => all.map(f64::abs).sum(),
        Kind::L2 => all.map(|v| v * v).sum::<f64>().sqrt(),
        Kind::SumSquare => all.map(|v| v * v).sum(),
        Kind::LogSum => all.sum::<f64>().ln(),
        Kind::Mean => {
            let (mut n, mut total) = (0.0, 0.0);
            all.for_each(|v| (n, total) = (n + 1.0, total + v));
            total / n
        }
        Kind::Max => all.reduce(|a, b| if a.is_nan() || a > b { a } else { b })?,
        Kind::Min => all.reduce(|a, b| if a.is_nan() || a < b { a } else { b })?,
        Kind::LogSumExp => {
            let all: Vec<f64> = all.collect();
            let top = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            if top.is_finite() {
                top + all.iter().map(|v| (v - top).exp()).sum::<f64>().ln()
            } else {
                top
            }
        }
    })
}

fn int(kind: Kind, all: &mut dyn Iterator<Item = i64>) -> Option<i64> {
    let sum = |a: i64, b: i64| a.wrapping_add(b);
    Some(match kind {
        Kind::Sum => all.fold(0, sum),
        Kind::Prod => all.fold(1, i64::wrapping_mul),
        Kind::L1 => all.map(i64::wrapping_abs).fold(0, sum),
        Kind::SumSquare => all.map(|v| v.wrapping_mul(v)).fold(0, sum),
        Kind::Max => all.max()?,
        Kind::Min => all.min()?,
        Kind::Mean => {
            let (mut n, mut total) = (0i64, 0i64);
            all.for_each(|v| (n, total) = (n + 1, total.wrapping_add(v)));
            total.checked_div(n)?
        }
        Kind::L2 | Kind::LogSum | Kind::LogSumExp => return None,
    })
}

/// The index of the greatest element along an axis.
pub(super) fn arg_max(c: &Call<'_>) -> Outputs {
    arg(c, |a, b| a > b)
}

/// The index of the least element along an axis.
pub(super) fn arg_min(c: &Call<'_>) -> Outputs {
    arg(c, |a, b| a < b)
}

fn arg(c: &Call<'_>, better: impl Fn(f64, f64) -> bool) -> Outputs {
    let dtype = Some(crate::dtype::DType::I64);
    let x = c.need(0)?;
    let along = c.int("axis")?.unwrap_or(0);
    let keep = c.int("keepdims")?.unwrap_or(1) != 0;
    let last = c.flag("select_last_index")?;
    let Some(dims) = x.dims.as_deref() else {
        return typed(dtype);
    };
    let along = super::shape::axis(along, dims.len())?;
    let mut result = dims.to_vec();
    result[along] = 1;
    if !keep {
        result.remove(along);
    }
    Ok(vec![c.value(dtype, result, |result| {
        let all = match c.array(0)? {
            Array::Float(a) => a,
            // Exact up to 2⁵³, like every float.
            Array::Int(a) => a.mapv(|v| v as f64).into_shared(),
            Array::Bool(_) => return None,
        };
        let all = flat(&all);
        let (outer, length, inner) = super::shape::around(dims, along).ok()?;
        let mut out = Vec::with_capacity(outer * inner);
        for at in 0..outer * inner {
            let base = at / inner * length * inner + at % inner;
            let value = |i: usize| all[base + i * inner];
            let best = (0..length).reduce(|a, b| {
                let (old, new) = (value(a), value(b));
                if better(new, old) || last && new == old {
                    b
                } else {
                    a
                }
            })?;
            out.push(best as i64);
        }
        Some(Array::Int(from_vec(result, out)?))
    })])
}

/// Reductions over all spatial axes: `[n, c, 1, …]`.
pub(super) fn global_pool(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    let dims = x.dims.as_ref().map(|dims| {
        let pooled = dims.iter().enumerate();
        pooled.map(|(i, d)| if i < 2 { *d } else { 1 }).collect()
    });
    Ok(vec![Value::shaped(x.dtype, dims)])
}
