//! Sequences of another length, where the old one is written in the graph.

use posenc_ir::ValueId;

use super::walk::Walk;
use super::{Plan, Wanted};
use crate::detect::context::Context;
use crate::error::{Refusal, RewriteError};
use crate::graph::extent::Extent;
use crate::graph::ports::Role;
use crate::plan::stretch;

/// Plans another length of the sequences that a model takes; `None` where its tables are not added whole.
///
/// # Errors
/// Where an input has no axis from which the length follows, and where a size in the graph does not
/// follow.
pub(crate) fn length(
    context: &Context<'_>,
    plan: &stretch::Plan,
) -> Result<Option<Plan>, RewriteError> {
    let Some(first) = plan.tables.iter().find(|table| is_whole(context, table)) else {
        return Ok(None);
    };
    if plan.tables.iter().any(|table| [table.old, table.new] != [first.old, first.new]) {
        let why = "its tables are of several lengths, and one of them is added whole";
        return Err(Refusal::unsupported(why).into());
    }
    let mut refused = None;
    for (input, axes) in inputs(context, [first.old, first.new]) {
        let wanted = Wanted::Length {
            length: first.new,
            tables: plan.tables.clone(),
        };
        let mut walk = Walk::new(context, wanted);
        walk.start(input, axes);
        match walk.run().and_then(|()| walk.check_windows()) {
            Ok(()) if walk.reaches_tables() => return Ok(Some(walk.plan(plan.inferred.clone()))),
            Ok(()) => {}
            Err(why) => refused = refused.or(Some(why)),
        }
    }
    let node = context.found.findings[first.finding].node();
    let why = "the position table is added whole, and no input is known from which the number of its rows \
               follows";
    let unknown = match node {
        Some(node) => context.refuse(node, why),
        None => Refusal::unsupported(why).into(),
    };
    Err(refused.unwrap_or(unknown))
}

/// Whether a table is added whole, and no rows are picked.
fn is_whole(context: &Context<'_>, table: &stretch::Table) -> bool {
    let entries = &context.found.findings[table.finding].entries;
    let is_constant = |value| context.found.classes.of_value(value).is_constant();
    entries.iter().all(|entry| {
        let value = context.graph().node(entry.node).input(entry.slot());
        value.is_some_and(is_constant)
    })
}

/// The inputs of which one axis is as long as the sequence, or a multiple of it, with their axes.
fn inputs(context: &Context<'_>, [old, new]: [usize; 2]) -> Vec<(ValueId, Vec<Extent>)> {
    let ports = context.found.ports.iter();
    let ports = ports.filter(|port| port.role == Role::Content);
    let mut all = vec![];
    for port in ports {
        let dims = context.dims(port.value).unwrap_or_default();
        // The first axis is the batch.
        for along in (1..dims.len()).filter(|axis| dims[*axis] > 0) {
            if !dims[along].is_multiple_of(old) {
                continue;
            }
            let times = dims[along] / old;
            let axes = dims.iter().enumerate().map(|(axis, n)| Extent::One {
                old: *n,
                new: if axis == along { new * times } else { *n },
            });
            all.push((port.value, axes.collect()));
        }
    }
    all
}
