//! Quantization.

use super::array::Array;
use super::binary::{spread, zip};
use super::call::{Call, Outputs};
use super::cast::int_range;
use super::data::Shared;
use super::shape::axis;
use super::{EvalError, Value};
use crate::dtype::DType;

/// Scale and zero point, broadcast to the elements of input 0.
struct Grid {
    scale: Shared<f64>,
    zero: Option<Shared<i64>>,
}

impl Grid {
    /// One scale for all, one per index of an axis, or one per block of indices.
    fn read(c: &Call<'_>, dims: &[usize], along: Option<usize>, block: usize) -> Option<Self> {
        let lay = |array: Array| -> Option<Array> {
            match array.dims() {
                [] | [1] => array.reshaped(&[]),
                [n] => {
                    let along = along.filter(|a| dims[*a] == *n)?;
                    let mut laid = vec![1; dims.len()];
                    laid[along] = *n;
                    array.reshaped(&laid)
                }
                _ => blocks(array, dims, along?, block),
            }
        };
        let zero = match c.at(2) {
            None => None,
            Some(_) => Some(lay(c.array(2)?)?.ints()?),
        };
        Some(Self {
            scale: lay(c.array(1)?)?.floats()?,
            zero,
        })
    }

    fn zeros(&self, dims: &[usize]) -> Option<Shared<i64>> {
        match &self.zero {
            Some(zero) => spread(Array::Int(zero.clone()), dims)?.ints(),
            None => Some(ndarray::ArrayD::zeros(dims).into_shared()),
        }
    }
}

/// Repeats every element along an axis `block` times.
fn blocks(array: Array, dims: &[usize], along: usize, block: usize) -> Option<Array> {
    if block == 0 || array.dims().len() != dims.len() {
        return None;
    }
    let own = array.dims().to_vec();
    if own[along] != dims[along].div_ceil(block) {
        return None;
    }
    let places: Vec<usize> = (0..dims[along]).map(|i| i / block).collect();
    Some(super::array::each!(array, |a| {
        a.select(ndarray::Axis(along), &places).into_shared()
    }))
}

fn place(c: &Call<'_>) -> Result<(Option<usize>, usize), EvalError> {
    let at = c.int("axis")?.unwrap_or(1);
    let block = c.int("block_size")?.unwrap_or(0);
    let per_tensor = c.dims(1).is_none_or(|d| d.is_empty() || d == [1]);
    let at = match c.dims(0) {
        Some(dims) if !per_tensor => Some(axis(at, dims.len())?),
        _ => None,
    };
    Ok((at, usize::try_from(block).unwrap_or(0)))
}

/// (x − zero) · scale.
pub(super) fn dequantize(c: &Call<'_>) -> Outputs {
    c.need(1)?;
    let (at, block) = place(c)?;
    let dtype = c.type_attribute("output_dtype")?.or(c.dtype(1));
    c.map(dtype, |a| {
        let x = a.ints()?;
        let grid = Grid::read(c, x.shape(), at, block)?;
        let zero = grid.zeros(x.shape())?;
        let steps = zip(&x, &zero, x.shape(), |x, z| x.wrapping_sub(z) as f64)?;
        let out = zip(&steps, &grid.scale, x.shape(), |x, s| x * s)?;
        Some(Array::Float(out))
    })
}

/// x ÷ scale, rounded to even, plus zero, saturated to the type.
pub(super) fn quantize(c: &Call<'_>) -> Outputs {
    c.need(1)?;
    let (at, block) = place(c)?;
    let named = c.type_attribute("output_dtype")?;
    let dtype = match c.at(2) {
        Some(zero) => zero.dtype,
        None => named.or(Some(DType::U8)),
    };
    c.map(dtype, |a| {
        let x = a.floats()?;
        let dtype = dtype.filter(|t| t.is_int())?;
        let grid = Grid::read(c, x.shape(), at, block)?;
        let zero = grid.zeros(x.shape())?;
        let (low, high) = int_range(dtype);
        let steps = zip(&x, &grid.scale, x.shape(), |x, s| {
            (x / s).round_ties_even() as i64
        })?;
        let out = zip(&steps, &zero, x.shape(), |x, z| {
            x.saturating_add(z).clamp(low, high)
        })?;
        Some(Array::Int(out))
    })
}

/// Unknown quantized content, and its scale and zero point as scalars.
pub(super) fn dynamic_quantize(c: &Call<'_>) -> Outputs {
    let dims = c.need(0)?.dims.clone();
    Ok(vec![
        Value::shaped(Some(DType::U8), dims),
        Value::opaque(DType::F32, []),
        Value::opaque(DType::U8, []),
    ])
}
