//! Removes convolutions that are added to their input.

use std::collections::BTreeMap;

use posenc_ir::{Emitter, NodeId, Use, ValueId};
use rustc_hash::FxHashSet;

use super::fused;
use super::remainder::Remainder;
use super::sum::SHAPE;
use crate::detect::context::Context;
use crate::edit::remove::replacements::Replacements;
use crate::error::RewriteError;
use crate::graph::region::shape_only;

/// Replaces the sum of the convolution and its input by the input. `at` is the use by which the
/// convolution enters the sum.
pub(crate) fn remove(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    replacements: &mut Replacements<'_>,
    at: Use,
) -> Result<(), RewriteError> {
    let node = context.graph().node(at.node);
    if let Some(other) = node
        .input(at.slot())
        .and_then(|v| read_elsewhere(context, v, at))
    {
        let why = "what the convolution gives is read here too, besides being added to its input";
        return Err(context.refuse(other, why));
    }
    if !node.is("Add") {
        out.set_scope(node.scope());
        let remainders = BTreeMap::from([(at.slot(), Remainder::Nothing)]);
        return fused::skip(out, context, replacements, at.node, &remainders);
    }
    let other = node.input(usize::from(at.slot() == 0));
    match other.zip(node.output(0)) {
        Some((other, sum)) if context.dims(other) == context.dims(sum) => {
            replacements.replace(sum, other);
            Ok(())
        }
        _ => Err(context.refuse(at.node, SHAPE)),
    }
}

/// The first node but the sum that reads what is added, or what it is made of since the
/// convolution.
fn read_elsewhere(context: &Context<'_>, added: ValueId, at: Use) -> Option<NodeId> {
    let graph = context.graph();
    let mut before = vec![added];
    let mut between: FxHashSet<NodeId> = FxHashSet::from_iter([at.node]);
    let mut made: Vec<ValueId> = vec![];
    while let Some(value) = before.pop() {
        let Some((id, _)) = graph.producer(value).filter(|(id, _)| between.insert(*id)) else {
            continue;
        };
        let node = graph.node(id);
        made.extend(node.outputs().iter().flatten());
        if !node.op().contains("Conv") && !shape_only(graph, id) {
            let content = |v: &&ValueId| context.found.is_content(**v);
            before.extend(node.inputs().iter().flatten().filter(content));
        }
    }
    let uses = made.iter().flat_map(|v| graph.uses(*v));
    let mut others = uses.filter(|at| !between.contains(&at.node) && !shape_only(graph, at.node));
    others.next().map(|at| at.node)
}
