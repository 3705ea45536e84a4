//! The stored constant behind the one that a node picks rows from.

use posenc_ir::{NodeId, Use, ValueId};

use crate::detect::context::Context;
use crate::error::{Refusal, RewriteError};

/// A constant whose rows a node picks, and the way to it.
pub(super) struct Source {
    pub(super) constant: ValueId,
    /// Where the constant is read.
    pub(super) at: Use,
    /// The reads of what operators in between make of it.
    pub(super) between: Vec<(ValueId, Use)>,
}

/// The stored constant behind the one that a node picks rows from: operators in between keep every
/// element in its place.
pub(super) fn source(context: &Context<'_>, reader: NodeId, table: ValueId) -> Source {
    let graph = context.graph();
    let inputs = graph.node(reader).inputs();
    let slot = inputs.iter().position(|v| *v == Some(table));
    let mut found = Source {
        constant: table,
        at: Use::new(reader, slot.unwrap_or(0)),
        between: vec![],
    };
    while let Some((id, _)) = graph
        .producer(found.constant)
        .filter(|_| graph.stored(found.constant).is_none())
    {
        let node = graph.node(id);
        let one = |v: ValueId| {
            context
                .dims(v)
                .is_some_and(|dims| dims.iter().product::<usize>() == 1)
        };
        let keeps = match node.op() {
            "Identity" | "Cast" => true,
            // Scales of rows would have to become more too.
            "DequantizeLinear" => node.input(1).is_some_and(one),
            _ => false,
        };
        let is_known = matches!(node.domain(), "" | "com.microsoft");
        let Some(before) = node.input(0).filter(|_| keeps && is_known) else {
            break;
        };
        found.between.push((found.constant, found.at));
        (found.constant, found.at) = (before, Use::new(id, 0));
    }
    found
}

/// Refuses a table that something else reads too behind an operator: it would get the new rows. `what` is what
/// it is called.
pub(super) fn check_readers(
    context: &Context<'_>,
    between: &[(ValueId, Use)],
    what: &str,
) -> Result<(), RewriteError> {
    let graph = context.graph();
    for (value, _) in between {
        let known = |at: &Use| between.contains(&(*value, *at));
        let other = graph.uses(*value).iter().find(|at| !known(at));
        let name = graph.name(*value);
        if let Some(at) = other {
            let why = format!("{name}, a copy of {what}, is read here for something else");
            return Err(context.refuse(at.node, why));
        }
        if graph.value(*value).is_output() {
            let why = format!("{name}, a copy of {what}, is an output");
            return Err(Refusal::unsupported(why).into());
        }
    }
    Ok(())
}
