//! Giving a model other sizes: tables that are added whole, numbers of shapes, and declared dimensions.

mod bias;
mod code;
mod follow;
mod numbers;
mod open;
mod open_length;
mod rotation;
mod symbols;

use std::collections::BTreeMap;

use posenc_ir::{Applied, Emitter, Model, Tensor, Use, ValueId};

use crate::detect::context::Context;
use crate::edit::stretch;
use crate::error::RewriteError;
use crate::plan::resize::Plan;
use crate::plan::resize::rotations::ResizedRotation;
use crate::plan::resize::table::{NewRows, ResizedTable};
use numbers::{along, refuse, stored};
pub(crate) use open::open;
pub(crate) use open_length::open_length;

/// Applies a plan to a model, and says what changed.
///
/// # Errors
/// Where a table has no numbers at hand, or is of a type that cannot hold others.
pub(crate) fn resize(context: &Context<'_>, plan: &Plan) -> Result<(Model, Applied), RewriteError> {
    let model = context.model;
    let graph = model.graph();
    let mut out = graph.emitter(graph.main(), "posenc");
    let mut done: Vec<&ResizedTable> = vec![];
    for table in &plan.tables {
        if table.is_computed || done.iter().any(|other| other.is_like(table)) {
            continue;
        }
        done.push(table);
        let same = plan.tables.iter().filter(|other| other.is_like(table));
        let uses = same.map(|other| other.entry);
        let uses: Vec<Use> = uses.collect();
        let tensor = tensor(context, table)?;
        replace(&mut out, context, table.value, &uses, tensor, "positions")?;
    }
    let mut biased = BTreeMap::<ValueId, Vec<Use>>::new();
    for own in plan.biases.iter().filter(|own| !own.is_computed) {
        biased.entry(own.value).or_default().push(own.entry);
    }
    for (value, uses) in biased {
        let own = plan.biases.iter().find(|own| own.value == value);
        let Some(own) = own else { continue };
        let tensor = bias::tensor(context, own, &plan.wanted)?;
        replace(&mut out, context, value, &uses, tensor, "bias")?;
    }
    let mut turned: Vec<&ResizedRotation> = vec![];
    for own in plan.rotations.iter().filter(|own| own.stored.is_some()) {
        if turned.iter().any(|other| other.is_like(own)) {
            continue;
        }
        turned.push(own);
        let same = plan.rotations.iter().filter(|other| other.is_like(own));
        let uses: Vec<Use> = same.map(|other| other.entry).collect();
        let tensor = rotation::tensor(context, own)?;
        replace(&mut out, context, own.value, &uses, tensor, "rotation")?;
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

/// Lets these uses of a constant, or of a cut that is all of it, read other numbers.
fn replace(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    value: ValueId,
    uses: &[Use],
    tensor: Tensor,
    label: &str,
) -> Result<(), RewriteError> {
    let graph = context.graph();
    let read = |at: &Use| graph.node(at.node).input(at.slot()).unwrap_or(value);
    if graph.stored(value).is_some() && uses.iter().all(|at| read(at) == value) {
        out.replace_constant(value, uses, tensor)?;
        return Ok(());
    }
    out.set_scope(graph.value(value).scope());
    let new = out.constant(label, tensor);
    for at in uses {
        out.redirect_use(read(at), *at, new)?;
    }
    let mut old: Vec<ValueId> = uses.iter().map(read).collect();
    old.sort_unstable();
    old.dedup();
    for value in old {
        out.remove_if_unused(value)?;
    }
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
        NewRows::Code(code) => return code::tensor(context, table, code),
    };
    let mut numbers = numbers::numbers(context, table.value)?;
    for (axis, extent) in table.axes.iter().enumerate() {
        numbers = along(numbers, axis, extent, rows).map_err(|why| {
            let why = format!("cannot be resized: {why}");
            refuse(context, table.value, &why)
        })?;
    }
    Ok(stored(context, table.value, &numbers))
}
