//! Sequences of another length, where the old one is written in the graph.

use posenc_ir::ValueId;

use super::sizes::{Plan, Wanted};
use super::walk::Walk;
use crate::detect::context::Context;
use crate::error::{Refusal, RewriteError};
use crate::graph::extent::Extent;
use crate::graph::ports::Role;
use crate::plan::stretch;

/// Plans another length of the sequences that a model takes, where the old one is written in the graph;
/// `None` where it is not.
///
/// # Errors
/// Where an input has no axis from which the length follows, and where a size in the graph does not
/// follow.
pub(crate) fn length(
    context: &Context<'_>,
    plan: &stretch::Plan,
) -> Result<Option<Plan>, RewriteError> {
    let whole = plan.tables.iter().find(|table| is_whole(context, table));
    let fixed = context.found.ports.fixed_sequence();
    let (old, new) = match (whole, fixed.zip(plan.max_length)) {
        (Some(table), _) => (table.old, table.new),
        (None, Some((old, new))) if old != new => (old, new),
        _ => return Ok(None),
    };
    if let Some(all) = plan.distances.first() {
        let why = "tables of distances in a graph of one length are not supported yet in a rescale";
        let finding = &context.found.findings[all.finding];
        return Err(context.refuse_finding(Some(finding), why));
    }
    let is_other = |table: &stretch::Table| [table.old, table.new] != [old, new];
    if plan.tables.iter().any(is_other) || !plan.biases.is_empty() {
        let mut sites = context.found.attention.iter();
        let advice = match sites.any(|site| site.place.stack.is_some()) {
            true => "give `stack` to rescale those of one stack",
            false => {
                "give `max-length` alone first, which opens the graph to sequences of any length"
            }
        };
        let why = format!(
            "its encodings and the graph end at several lengths, of which one is written in the graph; {advice}"
        );
        return Err(Refusal::unsupported(why).into());
    }
    let mut refused = None;
    for inputs in inputs(context, [old, new])? {
        let wanted = Wanted::Length {
            length: new,
            tables: plan.tables.clone(),
        };
        let mut walk = Walk::new(context, wanted);
        for (input, axes) in inputs {
            walk.start(input, axes);
        }
        let done = walk.run().and_then(|()| walk.check_windows());
        match done.and_then(|()| walk.check_counts()) {
            Ok(()) if walk.reaches_tables() => return Ok(Some(walk.plan(plan.inferred.clone()))),
            Ok(()) => {}
            Err(why) => refused = refused.or(Some(why)),
        }
    }
    let why = match plan.tables[..] {
        [] | [_] => {
            "the length is written in the graph, and no input is known from which it follows"
        }
        _ => {
            "a table that is added whole fits one length alone; give `stack` to rescale that of another \
             stack"
        }
    };
    let finding = whole.map(|table| &context.found.findings[table.finding]);
    Err(refused.unwrap_or_else(|| context.refuse_finding(finding, why)))
}

/// Whether a table is added whole, and no rows are picked.
fn is_whole(context: &Context<'_>, table: &stretch::Table) -> bool {
    let entries = &context.found.findings[table.finding].entries;
    let is_constant = |value| context.found.classes.of_value(value).is_constant();
    !entries.is_empty()
        && entries.iter().all(|entry| {
            let node = context.graph().node(entry.node);
            // A fused operator picks rows itself.
            node.domain().is_empty() && node.input(entry.slot()).is_some_and(is_constant)
        })
}

/// Inputs with their axes.
pub(super) type Inputs = Vec<(ValueId, Vec<Extent>)>;

/// The inputs that follow the length, in every way that may be meant: tokens and what is given for each of
/// them, or else an input of which one axis is a multiple of the length, as that of sounds.
fn inputs(context: &Context<'_>, [old, new]: [usize; 2]) -> Result<Vec<Inputs>, RewriteError> {
    let ports = &context.found.ports;
    if ports.iter().any(|port| port.role == Role::Tokens) {
        return Ok(vec![of_tokens(context, [old, new], None)?]);
    }
    let mut ways = vec![];
    for port in ports.iter().filter(|port| port.role == Role::Content) {
        let own = context.dims(port.value).unwrap_or_default();
        // The first axis is the batch.
        for along in (1..own.len()).filter(|axis| own[*axis] > 0 && own[*axis].is_multiple_of(old))
        {
            let times = own[along] / old;
            let axes = axes(own, |axis| (axis == along).then_some(new * times));
            ways.push(vec![(port.value, axes)]);
        }
    }
    Ok(ways)
}

/// Tokens, or an input with `features` for each of them along its second axis, and what else is given for each.
///
/// # Errors
/// Where the model has a cache.
pub(super) fn of_tokens(
    context: &Context<'_>,
    [old, new]: [usize; 2],
    features: Option<ValueId>,
) -> Result<Inputs, RewriteError> {
    let mut all = vec![];
    for port in context.found.ports.iter() {
        let is_token = |axis: usize| match port.role {
            Role::Tokens | Role::TokenTypes | Role::Positions => axis == port.token_axis(),
            Role::Padding => axis > 0,
            Role::Content => axis == 1 && features == Some(port.value),
            _ => false,
        };
        if port.role == Role::Past {
            let why = "a cache of a fixed length is not supported yet in a rescale";
            return Err(Refusal::unsupported(why).into());
        }
        let own = context.dims(port.value).unwrap_or_default();
        let changes = |axis: usize| is_token(axis) && own[axis] == old;
        if (0..own.len()).any(changes) {
            all.push((port.value, axes(own, |axis| changes(axis).then_some(new))));
        }
    }
    Ok(all)
}

/// Axes of these lengths, of which some get another one.
fn axes(dims: &[usize], other: impl Fn(usize) -> Option<usize>) -> Vec<Extent> {
    let axis = |(axis, n): (usize, &usize)| Extent::One {
        old: *n,
        new: other(axis).unwrap_or(*n),
    };
    dims.iter().enumerate().map(axis).collect()
}
