//! Normalizations.

use super::array::{Array, flat, from_vec};
use super::binary::spread;
use super::call::{Call, Outputs};
use super::data::Shared;
use super::shape::{around, axis, elements};
use super::{EvalError, Value, Why};
use crate::dtype::DType;

pub(super) fn softmax(c: &Call<'_>) -> Outputs {
    soft(c, |lane| {
        let top = lane.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        lane.iter_mut().for_each(|v| *v = (*v - top).exp());
        let total: f64 = lane.iter().sum();
        lane.iter_mut().for_each(|v| *v /= total);
    })
}

pub(super) fn log_softmax(c: &Call<'_>) -> Outputs {
    soft(c, |lane| {
        let top = lane.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total = lane.iter().map(|v| (v - top).exp()).sum::<f64>().ln();
        lane.iter_mut().for_each(|v| *v = *v - top - total);
    })
}

/// Since opset 13 along one axis (the last); before, along all axes from one (the second) on.
fn soft(c: &Call<'_>, normalize: impl Fn(&mut [f64])) -> Outputs {
    let legacy = c.opset < 13;
    let at = c.int("axis")?.unwrap_or(if legacy { 1 } else { -1 });
    let at = match c.dims(0) {
        Some([]) if at == 0 || at == -1 => None,
        // Before opset 13 the axis may be the rank: every lane has one element.
        Some(dims) if legacy && at == dims.len() as i64 => None,
        Some(dims) => Some(axis(at, dims.len())?),
        None => None,
    };
    c.map(c.dtype(0), |a| {
        let a = a.floats()?;
        let (outer, length, inner) = match at {
            None => (a.len(), 1, 1),
            Some(at) if legacy => (elements(&a.shape()[..at])?, elements(&a.shape()[at..])?, 1),
            Some(at) => around(a.shape(), at).ok()?,
        };
        let mut all = flat(&a).into_owned();
        let mut lane = vec![0.0; length];
        for n in 0..outer * inner {
            let base = n / inner * length * inner + n % inner;
            for (i, v) in lane.iter_mut().enumerate() {
                *v = all[base + i * inner];
            }
            normalize(&mut lane);
            for (i, v) in lane.iter().enumerate() {
                all[base + i * inner] = *v;
            }
        }
        Some(Array::Float(from_vec(a.shape(), all)?))
    })
}

/// What is subtracted from every lane before it is scaled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Center {
    Mean,
    Nothing,
}

/// Scales the lanes of the axes from `at` on to mean 0 (where centered) and mean square 1.
fn standard(x: &Shared<f64>, at: usize, epsilon: f64, center: Center) -> Option<Shared<f64>> {
    let length = elements(&x.shape()[at..])?;
    let mut all = flat(x).into_owned();
    if length > 0 {
        for lane in all.chunks_mut(length) {
            let n = length as f64;
            if center == Center::Mean {
                let mean = lane.iter().sum::<f64>() / n;
                lane.iter_mut().for_each(|v| *v -= mean);
            }
            let square = lane.iter().map(|v| v * v).sum::<f64>() / n;
            let factor = (square + epsilon).sqrt().recip();
            lane.iter_mut().for_each(|v| *v *= factor);
        }
    }
    from_vec(x.shape(), all)
}

/// Scales and shifts the lanes by these inputs, where given.
fn affine(c: &Call<'_>, x: Shared<f64>, scale: usize, shift: Option<usize>) -> Option<Shared<f64>> {
    let dims = x.shape().to_vec();
    let mut out = x;
    if c.at(scale).is_some() {
        let scale = spread(c.array(scale)?, &dims)?.floats()?;
        out = (&out * &scale).into_shared();
    }
    if let Some(shift) = shift.filter(|i| c.at(*i).is_some()) {
        let shift = spread(c.array(shift)?, &dims)?.floats()?;
        out = (&out + &shift).into_shared();
    }
    Some(out)
}

fn lanes(c: &Call<'_>, epsilon: f64, center: Center, shift: Option<usize>) -> Outputs {
    let epsilon = c.float("epsilon")?.unwrap_or(epsilon);
    let at = c.int("axis")?.unwrap_or(-1);
    let at = match c.dims(0) {
        Some(dims) => Some(axis(at, dims.len())?),
        None => None,
    };
    let mut out = c.map(c.dtype(0), |a| {
        let normal = standard(&a.floats()?, at?, epsilon, center)?;
        Some(Array::Float(affine(c, normal, 1, shift)?))
    })?;
    // Mean and inverse deviation, one of each lane.
    let per_lane = c.dims(0).zip(at).map(|(dims, at)| {
        let dims = dims.iter().enumerate();
        dims.map(|(i, d)| if i < at { *d } else { 1 }).collect()
    });
    let statistic = match c.int("stash_type")? {
        None | Some(1) => Some(DType::F32),
        Some(code) => i32::try_from(code).ok().and_then(DType::from_code),
    };
    out.resize(3, Value::shaped(statistic, per_lane));
    Ok(out)
}

pub(super) fn layer(c: &Call<'_>) -> Outputs {
    lanes(c, 1e-5, Center::Mean, Some(2))
}

pub(super) fn rms(c: &Call<'_>) -> Outputs {
    let mut out = lanes(c, 1e-5, Center::Nothing, None)?;
    out.truncate(1);
    Ok(out)
}

/// As `rms`, with the inverse deviation as second output.
pub(super) fn simplified_layer(c: &Call<'_>) -> Outputs {
    let mut out = lanes(c, 1e-5, Center::Nothing, None)?;
    out.truncate(2);
    Ok(out)
}

/// The inputs of a normalization after a skip connection.
struct Skip {
    center: Center,
    gamma: usize,
    beta: Option<usize>,
    bias: usize,
}

/// The sum of input, skip and bias, normalized; the sum itself is output 3.
fn skip(c: &Call<'_>, form: Skip) -> Outputs {
    let x = c.need(0)?;
    c.need(1)?;
    let epsilon = c.float("epsilon")?.unwrap_or(1e-12);
    let total = || -> Option<Shared<f64>> {
        let dims = x.dims.as_deref()?;
        let mut total = c.array(0)?.floats()?;
        for i in [1, form.bias] {
            if c.at(i).is_some() {
                let other = spread(c.array(i)?, dims)?.floats()?;
                total = (&total + &other).into_shared();
            }
        }
        Some(total)
    };
    let total = c.map(x.dtype, |_| Some(Array::Float(total()?)))?.remove(0);
    let normal = c.map(x.dtype, |_| {
        let total = total.array(c.budget)?.floats()?;
        let last = total.ndim().checked_sub(1)?;
        let normal = standard(&total, last, epsilon, form.center)?;
        Some(Array::Float(affine(c, normal, form.gamma, form.beta)?))
    })?;
    let per_lane = x.dims.as_ref().map(|dims| {
        let mut dims = dims.clone();
        if let Some(last) = dims.last_mut() {
            *last = 1;
        }
        dims
    });
    let statistic = Value::shaped(Some(DType::F32), per_lane);
    Ok([normal, vec![statistic.clone(), statistic, total]].concat())
}

/// Inputs: x, skip, gamma, beta, bias.
pub(super) fn skip_layer(c: &Call<'_>) -> Outputs {
    skip(
        c,
        Skip {
            center: Center::Mean,
            gamma: 2,
            beta: Some(3),
            bias: 4,
        },
    )
}

/// Inputs: x, skip, gamma, bias.
pub(super) fn skip_simplified_layer(c: &Call<'_>) -> Outputs {
    skip(
        c,
        Skip {
            center: Center::Nothing,
            gamma: 2,
            beta: None,
            bias: 3,
        },
    )
}

/// Normalizations over batch or space: dimensions of the first output only.
pub(super) fn spatial(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    if x.dims.as_ref().is_some_and(Vec::is_empty) {
        return Err(EvalError::from(Why::Rank));
    }
    Ok(vec![Value::shaped(x.dtype, x.dims.clone())])
}
