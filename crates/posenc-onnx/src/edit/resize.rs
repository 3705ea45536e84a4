//! Giving a model other sizes: tables that are added whole, numbers of shapes, and declared dimensions.

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
    let graph = context.graph();
    let rows = match &table.rows {
        NewRows::Grid(rows) => *rows,
        NewRows::Line(line) => {
            let axis = table.along().expect("rows of a line are along one axis");
            return stretch::tensor(context, line, table.value, axis);
        }
    };
    let refuse = |why: &str| -> RewriteError {
        let name = graph.name(table.value);
        Refusal::unsupported(format!("the position table {name} {why}")).into()
    };
    let dtype = context.dtype(table.value);
    if !dtype.is_float() || dtype.epsilon().is_none() {
        return Err(refuse("is of a type that cannot hold numbers in between"));
    }
    let stored = graph.constant(table.value).and_then(|tensor| {
        let numbers = tensor.to_f64s()?;
        ArrayD::from_shape_vec(IxDyn(tensor.dims()), numbers).ok()
    });
    let numbers = stored.or_else(|| context.found.trace.get(table.value).to_f64());
    let mut numbers = numbers.ok_or_else(|| refuse("has no data at hand"))?;
    for (axis, extent) in table.axes.iter().enumerate() {
        numbers = along(numbers, axis, extent, rows)
            .map_err(|why| refuse(&format!("cannot be resized: {why}")))?;
    }
    let dims = numbers.shape().to_vec();
    let numbers: Vec<f64> = numbers.iter().copied().collect();
    Ok(Tensor::from_f64(dtype, &dims, &numbers))
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
