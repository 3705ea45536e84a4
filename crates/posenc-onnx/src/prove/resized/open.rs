//! What a model for images of any size shows at some of them: at the old size what it was, and at a tall, a
//! wide and each other one that the plan names what a model made for that size alone would be.

use posenc_ir::{Dim, Model};

use super::check as resized;
use crate::detect::context::Context;
use crate::detect::{Options, detect};
use crate::error::RewriteError;
use crate::plan::resize::table::ResizedTable;
use crate::plan::resize::{Open, Plan, Wanted};
use crate::prove::invariants::check_same_sites;
use crate::request::ImageSize;

/// Compares the result with the plan at each of its sizes.
///
/// # Errors
/// With what differs, and at which size.
pub(crate) fn check(
    before: &Context<'_>,
    next: &Model,
    plan: &Open,
    options: &Options,
) -> Result<(), RewriteError> {
    check_at_old(before, next, plan, options)?;
    plan.trials
        .iter()
        .try_for_each(|trial| check_at(before, next, (plan, trial), options))
}

/// Compares the result at another size with the plan of that size alone.
fn check_at(
    before: &Context<'_>,
    next: &Model,
    (plan, trial): (&Open, &Plan),
    options: &Options,
) -> Result<(), RewriteError> {
    let Wanted::Image { size, .. } = trial.wanted else {
        return Ok(());
    };
    let model = fixed(next, plan, size)?;
    let found = detect(&model, options);
    let after = Context {
        model: &model,
        found: &found,
    };
    // The graph makes the rows of every table now.
    let is_computed = |table: &ResizedTable| ResizedTable {
        is_computed: true,
        is_fixed: false,
        ..table.clone()
    };
    let trial = Plan {
        tables: trial.tables.iter().map(is_computed).collect(),
        ..trial.clone()
    };
    resized(before, &after, &trial)
}

/// Compares the result at the old size with the model as it was.
fn check_at_old(
    before: &Context<'_>,
    next: &Model,
    plan: &Open,
    options: &Options,
) -> Result<(), RewriteError> {
    let model = fixed(next, plan, plan.old)?;
    let found = detect(&model, options);
    let after = Context {
        model: &model,
        found: &found,
    };
    let sides = [plan.old.height, plan.old.width];
    let same = Plan {
        rotations: vec![],
        wanted: Wanted::Image {
            size: plan.old,
            old: sides,
            by: plan.by,
        },
        tables: vec![],
        biases: vec![],
        constants: [].into(),
        cuts: [].into(),
        axes: [].into(),
        inferred: vec![],
    };
    resized(before, &after, &same)?;
    for table in &plan.tables {
        let node = table.entry.node;
        let own = model.graph().node(node).input(table.entry.slot());
        let new = own.and_then(|own| found.trace.get(own).to_f64());
        let old = before.found.trace.get(table.value).to_f64();
        if new.is_none() || old.is_none() {
            let why = "what the position table adds cannot be computed";
            return Err(before.refuse(node, why));
        }
        if new != old {
            let why = "the table would get other numbers at the size that it was made for";
            return Err(before.refuse(node, why));
        }
    }
    Ok(())
}

/// Compares what shows where the size is left open: the same attention, and the same encodings.
///
/// # Errors
/// With what differs, and where.
pub(crate) fn check_open(before: &Context<'_>, after: &Context<'_>) -> Result<(), RewriteError> {
    check_same_sites(after, before.found, "where the size of images is left open")?;
    let (old, new) = (&before.found.findings, &after.found.findings);
    let mut pairs = old.iter().zip(new);
    let differs = pairs.find(|(a, b)| a.sites != b.sites || a.encoding != b.encoding);
    if differs.is_none() && old.len() == new.len() {
        return Ok(());
    }
    let why = "the encoding cannot be read back where the size of images is left open";
    Err(before.refuse_finding(differs.map(|(old, _)| old), why))
}

/// The model for images of this size alone.
fn fixed(next: &Model, plan: &Open, size: ImageSize) -> Result<Model, RewriteError> {
    let graph = next.graph();
    let mut dims = graph
        .value(plan.input)
        .shape()
        .map(<[Dim]>::to_vec)
        .unwrap_or_default();
    for (axis, side) in plan.sides.into_iter().zip([size.height, size.width]) {
        if let Some(dim) = dims.get_mut(axis) {
            *dim = Dim::Known(side);
        }
    }
    let mut out = graph.emitter(graph.main(), "posenc");
    out.redeclare(plan.input, dims)?;
    let patch = out.finish();
    Ok(next.clone().with_patch(patch)?.0)
}
