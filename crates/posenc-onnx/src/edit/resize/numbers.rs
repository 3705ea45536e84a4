//! Numbers of constants, and those in between on another grid.

use ndarray::{ArrayD, Axis, IxDyn, Slice, concatenate};
use posenc_encodings::resize::{ResizeError, Weights};
use posenc_ir::{Tensor, ValueId};

use crate::detect::context::Context;
use crate::error::{Refusal, RewriteError};
use crate::graph::extent::Extent;
use crate::plan::resize::table::Interpolation;

/// The refusal of what a constant is.
pub(super) fn refuse(context: &Context<'_>, value: ValueId, why: &str) -> RewriteError {
    let name = context.graph().name(value);
    Refusal::unsupported(format!("the constant {name} {why}")).into()
}

/// The numbers of a constant between which there are others.
pub(super) fn numbers(context: &Context<'_>, value: ValueId) -> Result<ArrayD<f64>, RewriteError> {
    let dtype = context.dtype(value);
    if !dtype.is_float() || dtype.epsilon().is_none() {
        let why = "is of a type that cannot hold numbers in between";
        return Err(refuse(context, value, why));
    }
    let stored = context.graph().constant(value).and_then(|tensor| {
        let numbers = tensor.to_f64s()?;
        ArrayD::from_shape_vec(IxDyn(tensor.dims()), numbers).ok()
    });
    let numbers = stored.or_else(|| context.found.trace.get(value).to_f64());
    numbers.ok_or_else(|| refuse(context, value, "has no data at hand"))
}

/// Numbers in the type of a value.
pub(super) fn stored(context: &Context<'_>, value: ValueId, numbers: &ArrayD<f64>) -> Tensor {
    let flat: Vec<f64> = numbers.iter().copied().collect();
    Tensor::from_f64(context.dtype(value), numbers.shape(), &flat)
}

/// An array with another length along an axis.
pub(super) fn along(
    numbers: ArrayD<f64>,
    axis: usize,
    extent: &Extent,
    rows: Interpolation,
) -> Result<ArrayD<f64>, ResizeError> {
    let Interpolation {
        by,
        corners,
        antialias,
    } = rows;
    match extent {
        _ if !extent.changes() => Ok(numbers),
        Extent::One { old, new } => {
            let weights = by.side(*old, *new, corners, antialias)?;
            Ok(weighted(&numbers, axis, &weights))
        }
        Extent::Product(factors) => {
            let mut dims = numbers.shape().to_vec();
            dims.splice(axis..=axis, factors.iter().map(Extent::before));
            let mut apart = numbers
                .as_standard_layout()
                .into_owned()
                .into_shape_with_order(dims)
                .expect("as many numbers as the factors say");
            for (place, factor) in factors.iter().enumerate() {
                apart = along(apart, axis + place, factor, rows)?;
            }
            let mut dims = apart.shape().to_vec();
            dims.splice(axis..axis + factors.len(), [extent.after()]);
            let apart = apart.as_standard_layout().into_owned();
            Ok(apart
                .into_shape_with_order(dims)
                .expect("as many numbers as before"))
        }
        Extent::Sum(parts) => {
            let mut start = 0;
            let mut all = vec![];
            for part in parts {
                let end = start + part.before();
                let own = numbers.slice_axis(Axis(axis), Slice::from(start..end));
                let own = own.as_standard_layout().into_owned();
                all.push(along(own, axis, part, rows)?);
                start = end;
            }
            let views: Vec<_> = all.iter().map(|part| part.view()).collect();
            Ok(concatenate(Axis(axis), &views).expect("parts of one width"))
        }
    }
}

/// Sums of weighted rows along an axis.
fn weighted(numbers: &ArrayD<f64>, axis: usize, weights: &[Weights]) -> ArrayD<f64> {
    let mut dims = numbers.shape().to_vec();
    dims[axis] = weights.len();
    let mut made = ArrayD::zeros(dims);
    for (mut row, weights) in made.axis_iter_mut(Axis(axis)).zip(weights) {
        for (old, weight) in weights {
            row.scaled_add(*weight, &numbers.index_axis(Axis(axis), *old));
        }
    }
    made
}
