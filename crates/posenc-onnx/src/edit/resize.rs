//! Giving a model other sizes: tables that are added whole, numbers of shapes, and declared dimensions.

mod bias;
mod follow;
mod open;

use std::collections::BTreeMap;

use ndarray::{ArrayD, Axis, IxDyn, Slice, concatenate};
use posenc_encodings::resize::{ResizeError, Weights};
use posenc_ir::{Applied, Emitter, Model, Tensor, Use, ValueId};

use crate::detect::context::Context;
use crate::edit::stretch;
use crate::error::{Refusal, RewriteError};
use crate::graph::extent::Extent;
use crate::plan::resize::Plan;
use crate::plan::resize::table::{Interpolation, NewRows, ResizedTable};
pub(crate) use open::open;

/// Applies a plan to a model, and says what changed.
///
/// # Errors
/// Where a table has no numbers at hand, or is of a type that cannot hold others.
pub(crate) fn resize(context: &Context<'_>, plan: &Plan) -> Result<(Model, Applied), RewriteError> {
    let model = context.model;
    let graph = model.graph();
    let mut out = graph.emitter(graph.main(), "posenc");
    let mut done: Vec<(ValueId, &[Extent])> = vec![];
    for table in &plan.tables {
        if table.is_computed || done.contains(&(table.value, &table.axes)) {
            continue;
        }
        done.push((table.value, &table.axes));
        let same = |other: &&ResizedTable| other.value == table.value && other.axes == table.axes;
        let uses = plan.tables.iter().filter(same).map(|other| other.entry);
        let uses: Vec<Use> = uses.collect();
        let tensor = tensor(context, table)?;
        replace(&mut out, context, table.value, &uses, tensor, "positions")?;
    }
    let mut biased = BTreeMap::<ValueId, Vec<Use>>::new();
    for own in &plan.biases {
        biased.entry(own.value).or_default().push(own.entry);
    }
    for (value, uses) in biased {
        let own = plan.biases.iter().find(|own| own.value == value);
        let Some(own) = own else { continue };
        let tensor = bias::tensor(context, own, &plan.wanted)?;
        replace(&mut out, context, value, &uses, tensor, "bias")?;
    }
    let mut constants: BTreeMap<ValueId, Vec<(&Tensor, Vec<Use>)>> = BTreeMap::new();
    for (at, (value, tensor)) in &plan.constants {
        let own = constants.entry(*value).or_default();
        match own.iter_mut().find(|(known, _)| *known == tensor) {
            Some((_, uses)) => uses.push(*at),
            None => own.push((tensor, vec![*at])),
        }
    }
    for (value, own) in constants {
        for (tensor, uses) in own {
            replace(&mut out, context, value, &uses, tensor.clone(), "constant")?;
        }
    }
    for value in plan.axes.keys().copied() {
        let declared = graph.value(value).shape();
        if let Some(dims) = declared.and_then(|dims| plan.declared(value, dims)) {
            out.redeclare(value, dims)?;
        }
    }
    Ok(model.clone().with_patch(out.finish())?)
}

/// Lets these uses of a constant read other numbers.
fn replace(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    value: ValueId,
    uses: &[Use],
    tensor: Tensor,
    label: &str,
) -> Result<(), RewriteError> {
    let graph = context.graph();
    if graph.stored(value).is_some() {
        out.replace_constant(value, uses, tensor)?;
        return Ok(());
    }
    out.set_scope(graph.value(value).scope());
    let new = out.constant(label, tensor);
    for at in uses {
        out.redirect_use(value, *at, new)?;
    }
    out.remove_if_unused(value)?;
    Ok(())
}

/// What is added then.
fn tensor(context: &Context<'_>, table: &ResizedTable) -> Result<Tensor, RewriteError> {
    let rows = match &table.rows {
        NewRows::Grid(rows) => *rows,
        NewRows::Line(line) => {
            let axis = table.along().expect("rows of a line are along one axis");
            return stretch::tensor(context, line, table.value, axis);
        }
    };
    let mut numbers = numbers(context, table.value)?;
    for (axis, extent) in table.axes.iter().enumerate() {
        numbers = along(numbers, axis, extent, rows).map_err(|why| {
            let why = format!("cannot be resized: {why}");
            refuse(context, table.value, &why)
        })?;
    }
    Ok(stored(context, table.value, &numbers))
}

/// The refusal of what a constant is.
fn refuse(context: &Context<'_>, value: ValueId, why: &str) -> RewriteError {
    let name = context.graph().name(value);
    Refusal::unsupported(format!("the constant {name} {why}")).into()
}

/// The numbers of a constant between which there are others.
fn numbers(context: &Context<'_>, value: ValueId) -> Result<ArrayD<f64>, RewriteError> {
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
fn stored(context: &Context<'_>, value: ValueId, numbers: &ArrayD<f64>) -> Tensor {
    let flat: Vec<f64> = numbers.iter().copied().collect();
    Tensor::from_f64(context.dtype(value), numbers.shape(), &flat)
}

/// An array with another length along an axis.
fn along(
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
