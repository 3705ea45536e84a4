//! Convolutions, pooling and resizing: dimensions only, except for convolutions and nearest-neighbor
//! resizing of known elements.

use super::array::Array;
use super::call::{Call, Given, Outputs, typed};
use super::convolve::convolved;
use super::data::Shared;
use super::shape::{axis, dim, product};
use super::window::Window;
use super::{EvalError, Value, Why};
use crate::dtype::DType;

/// The inputs of a convolution, and the element type of its result.
struct Form {
    weight: usize,
    dtype: Option<DType>,
    /// Whether the channels are the last axis, in the input and the result.
    channels_last: bool,
}

fn convolve(c: &Call<'_>, form: &Form) -> Outputs {
    c.need(0)?;
    c.need(form.weight)?;
    let (Some(x), Some(w)) = (c.dims(0), c.dims(form.weight)) else {
        return typed(form.dtype);
    };
    if x.len() < 3 || w.len() != x.len() {
        return Err(Why::Rank.into());
    }
    let rank = x.len() - 2;
    let (space, channels) = if form.channels_last {
        (&x[1..=rank], x[rank + 1])
    } else {
        (&x[2..], x[1])
    };
    let (kernel, depth) = if form.channels_last {
        (&w[1..=rank], w[rank + 1])
    } else {
        (&w[2..], w[1])
    };
    let groups = dim(c.int("group")?.unwrap_or(1))?;
    if depth.checked_mul(groups) != Some(channels) {
        return Err(Why::Shapes.into());
    }
    let window = Window::read(c, rank, Some(kernel))?;
    let fits = space.iter().enumerate().map(|(i, n)| window.fits(i, *n));
    let mut dims = fits.collect::<Result<Vec<usize>, EvalError>>()?;
    dims.insert(0, x[0]);
    dims.insert(if form.channels_last { rank + 1 } else { 1 }, w[0]);
    // Integer weights have scales.
    let known = (!form.channels_last).then(|| floats(c)).flatten();
    let made = |dims: &[usize]| {
        let (x, w, bias) = known?;
        convolved(&x, &w, bias.as_ref(), &window, dims, c.budget.elements)
    };
    Ok(vec![c.value(form.dtype, dims, made)])
}

/// The input, weights and bias of a convolution.
type Operands = (Shared<f64>, Shared<f64>, Option<Shared<f64>>);

/// The operands where all are known.
fn floats(c: &Call<'_>) -> Option<Operands> {
    if !c.node.is("Conv") {
        return None;
    }
    let at = |i: usize| c.array(i)?.floats();
    let bias = match c.at(2) {
        Some(_) => Some(at(2)?),
        None => None,
    };
    Some((at(0)?, at(1)?, bias))
}

pub(super) fn conv(c: &Call<'_>) -> Outputs {
    let form = Form {
        weight: 1,
        dtype: c.dtype(0),
        channels_last: false,
    };
    convolve(c, &form)
}

pub(super) fn conv_integer(c: &Call<'_>) -> Outputs {
    let form = Form {
        weight: 1,
        dtype: Some(DType::I32),
        channels_last: false,
    };
    convolve(c, &form)
}

pub(super) fn quantized_conv(c: &Call<'_>) -> Outputs {
    let form = Form {
        weight: 3,
        dtype: c.dtype(7).or(c.dtype(0)),
        channels_last: c.flag("channels_last")?,
    };
    convolve(c, &form)
}

pub(super) fn channels_last_conv(c: &Call<'_>) -> Outputs {
    let form = Form {
        weight: 1,
        dtype: c.dtype(0),
        channels_last: true,
    };
    convolve(c, &form)
}

pub(super) fn conv_transpose(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    c.need(1)?;
    let (Some(dims), Some(w)) = (c.dims(0), c.dims(1)) else {
        return typed(x.dtype);
    };
    if dims.len() < 3 || w.len() != dims.len() {
        return Err(Why::Rank.into());
    }
    if dims[1] != w[0] {
        return Err(Why::Shapes.into());
    }
    let rank = dims.len() - 2;
    let window = Window::read(c, rank, Some(&w[2..]))?;
    let groups = dim(c.int("group")?.unwrap_or(1))?;
    let extra = c.ints("output_padding")?;
    let mut result = vec![dims[0], product(&[w[1], groups])?];
    match c.ints("output_shape")? {
        Some(shape) => {
            let from = shape.len().saturating_sub(rank);
            for d in &shape[from..] {
                result.push(dim(*d)?);
            }
        }
        None => {
            for (i, n) in dims[2..].iter().enumerate() {
                let extra = extra.and_then(|all| all.get(i)).copied().unwrap_or(0);
                result.push(window.unfits(i, *n, extra)?);
            }
        }
    }
    Ok(vec![Value::shaped(x.dtype, Some(result))])
}

/// Pooling; output 1 has the indices of the maxima.
pub(super) fn pool(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    let Some(dims) = x.dims.as_deref() else {
        return Ok(vec![
            Value::shaped(x.dtype, None),
            Value::shaped(Some(DType::I64), None),
        ]);
    };
    if dims.len() < 3 {
        return Err(Why::Rank.into());
    }
    let window = Window::read(c, dims.len() - 2, None)?;
    let fits = dims[2..].iter().enumerate();
    let fits = fits.map(|(i, n)| window.fits(i, *n));
    let result: Result<Vec<usize>, EvalError> =
        dims[..2].iter().map(|d| Ok(*d)).chain(fits).collect();
    let result = result?;
    Ok(vec![
        Value::shaped(x.dtype, Some(result.clone())),
        Value::shaped(Some(DType::I64), Some(result)),
    ])
}

/// As many elements as the grid has coordinates.
pub(super) fn grid_sample(c: &Call<'_>) -> Outputs {
    let (x, grid) = (c.need(0)?, c.need(1)?);
    let (Some(dims), Some([batch, places @ .., _])) = (x.dims.as_deref(), grid.dims.as_deref())
    else {
        return typed(x.dtype);
    };
    if dims.len() < 3 || places.len() + 2 != dims.len() || *batch != dims[0] {
        return Err(Why::Shapes.into());
    }
    let dims = [&dims[..2], places].concat();
    Ok(vec![Value::shaped(x.dtype, Some(dims))])
}

/// Scales are input 1 before opset 11, and inputs 2 (factors) or 3 (sizes) since.
pub(super) fn resize(c: &Call<'_>) -> Outputs {
    let mut outputs = resized(c)?;
    let x = c.need(0)?;
    let crops = c.string("coordinate_transformation_mode")? == Some("tf_crop_and_resize");
    let scales = c
        .at(if c.opset < 11 { 1 } else { 2 })
        .and_then(Value::to_f64);
    let stays = scales.is_none_or(|all| all.iter().all(|s| *s == 1.0));
    if let [out] = &mut outputs[..]
        && out.data.is_none()
        && out.dims == x.dims
        && stays
        && !crops
    {
        // In every mode, the elements stay where no axis changes.
        out.data = x.data.clone();
    }
    Ok(outputs)
}

fn resized(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    let Some(old) = x.dims.as_deref() else {
        return typed(x.dtype);
    };
    let axes: Vec<usize> = match c.ints("axes")? {
        Some(axes) => axes
            .iter()
            .map(|a| axis(*a, old.len()))
            .collect::<Result<_, EvalError>>()?,
        None => (0..old.len()).collect(),
    };
    let mut dims = old.to_vec();
    let early = c.opset < 11 || c.node.is("Upsample");
    // An empty list counts as omitted.
    let sizes = match (early, c.input_list(3)) {
        (true, _) | (_, Given::Absent) => None,
        (_, Given::Unknown) => return typed(x.dtype),
        (_, Given::Known(sizes)) => Some(sizes).filter(|s| !s.is_empty() || axes.is_empty()),
    };
    if let Some(sizes) = sizes {
        if sizes.len() != axes.len() {
            return Err(Why::Parameter("sizes").into());
        }
        let policy = c.string("keep_aspect_ratio_policy")?;
        let ratios = axes
            .iter()
            .zip(&sizes)
            .map(|(a, s)| *s as f64 / old[*a] as f64);
        let ratio = match policy {
            None | Some("stretch") => None,
            Some("not_larger") => Some(ratios.fold(f64::INFINITY, f64::min)),
            Some("not_smaller") => Some(ratios.fold(0.0, f64::max)),
            Some(_) => return Err(Why::Attribute("keep_aspect_ratio_policy").into()),
        };
        for (a, size) in axes.iter().zip(&sizes) {
            dims[*a] = match ratio {
                None => dim(*size)?,
                Some(ratio) => dim((ratio * old[*a] as f64 + 0.5).floor() as i64)?,
            };
        }
        let ratio = |(new, old): (&usize, &usize)| *new as f64 / (*old).max(1) as f64;
        let scales: Vec<f64> = dims.iter().zip(old).map(ratio).collect();
        return Ok(vec![sampled(c, dims, &scales)?]);
    }
    let scales: Vec<f64> = match c.at(if early { 1 } else { 2 }) {
        Some(scales) => match scales.array(c.budget) {
            Some(all) => match all.floats() {
                Some(all) => all.iter().copied().collect(),
                None => return Err(Why::Parameter("scales").into()),
            },
            None => return typed(x.dtype),
        },
        None => match c.node.floats("scales") {
            Ok(Some(all)) => all.iter().map(|v| f64::from(*v)).collect(),
            _ => return Err(Why::Parameter("scales").into()),
        },
    };
    if scales.len() != axes.len() {
        return Err(Why::Parameter("scales").into());
    }
    let mut all = vec![1.0; old.len()];
    for (a, scale) in axes.iter().zip(scales) {
        all[*a] = scale;
        let length = (old[*a] as f64 * scale).floor();
        if length.is_nan() || length < 0.0 {
            return Err(Why::Dimension.into());
        }
        dims[*a] = dim(length as usize)?;
    }
    Ok(vec![sampled(c, dims, &all)?])
}

fn sampled(c: &Call<'_>, dims: Vec<usize>, scales: &[f64]) -> Result<Value, EvalError> {
    match c.string("mode")? {
        Some("linear" | "cubic") if c.opset >= 11 && c.node.is("Resize") => {
            super::interpolate::between(c, dims, scales)
        }
        _ => nearest(c, dims, scales),
    }
}

/// Resizing in the default mode: each element is the nearest one.
fn nearest(c: &Call<'_>, dims: Vec<usize>, scales: &[f64]) -> Result<Value, EvalError> {
    let x = c.need(0)?;
    let shaped = Value::shaped(x.dtype, Some(dims.clone()));
    let plain = matches!(c.string("mode")?, None | Some("nearest"));
    let data = (plain && c.budget.allows(&dims)).then(|| x.array(c.budget));
    let (Some(Some(mut data)), Some(old)) = (data, x.dims.as_deref()) else {
        return Ok(shaped);
    };
    let early = c.opset < 11 || c.node.is("Upsample");
    let from = match c.string("coordinate_transformation_mode")? {
        _ if early => "asymmetric",
        from => from.unwrap_or("half_pixel"),
    };
    let rounding = match c.string("nearest_mode")? {
        _ if early => "floor",
        rounding => rounding.unwrap_or("round_prefer_floor"),
    };
    for (axis, scale) in scales.iter().enumerate() {
        if old[axis] == dims[axis] && *scale == 1.0 {
            continue;
        }
        let last = old[axis].saturating_sub(1) as f64;
        let place = |at: usize| -> Option<usize> {
            let place = super::interpolate::coordinate(from, at, *scale, [old[axis], dims[axis]])?;
            let place = match rounding {
                "floor" => place.floor(),
                "ceil" => place.ceil(),
                "round_prefer_floor" => (place - 0.5).ceil(),
                "round_prefer_ceil" => (place + 0.5).floor(),
                _ => return None,
            };
            Some(place.clamp(0.0, last) as usize)
        };
        let places: Option<Vec<usize>> = (0..dims[axis]).map(place).collect();
        let Some(places) = places.filter(|_| old[axis] > 0) else {
            return Ok(shaped);
        };
        let axis = ndarray::Axis(axis);
        data = match data {
            Array::Float(a) => Array::Float(a.select(axis, &places).into_shared()),
            Array::Int(a) => Array::Int(a.select(axis, &places).into_shared()),
            Array::Bool(a) => Array::Bool(a.select(axis, &places).into_shared()),
        };
    }
    Ok(Value::of(x.dtype, data))
}
