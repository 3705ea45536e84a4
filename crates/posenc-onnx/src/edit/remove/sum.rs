//! Sums without the summands that are removed.

use std::collections::BTreeMap;

use posenc_ir::{Emitter, NodeId, ValueId};

use super::remainder::Remainder;
use super::replacements::Replacements;
use crate::detect::context::Context;
use crate::error::RewriteError;

/// The sum of the inputs of a node. An input whose slot is in `remainders` counts only with its
/// remainder.
///
/// # Errors
/// If no input that is kept has the shape of the sum.
pub(crate) fn sum_of_rest(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    replacements: &Replacements<'_>,
    id: NodeId,
    remainders: &BTreeMap<usize, Remainder>,
) -> Result<ValueId, RewriteError> {
    let node = context.graph().node(id);
    let mut kept: Vec<ValueId> = vec![];
    let mut has_shape = false;
    for (slot, input) in node.inputs().iter().enumerate() {
        let Some(input) = input else { continue };
        match remainders.get(&slot) {
            Some(Remainder::Nothing) => {}
            Some(Remainder::Value(value)) => kept.push(*value),
            None => {
                let dims = node.output(0).and_then(|sum| context.dims(sum));
                has_shape |= dims.is_some() && context.dims(*input) == dims;
                kept.push(replacements.current(*input));
            }
        }
    }
    if !has_shape {
        return Err(context.refuse(id, SHAPE));
    }
    let mut kept = kept.into_iter();
    let first = kept.next();
    let sum = first.map(|first| kept.fold(first, |a, b| out.op("Add", &[a, b])));
    sum.ok_or_else(|| context.refuse(id, "cannot remove the encoding: the sum has no other input"))
}

/// Why a summand cannot be removed that gives the sum its shape.
pub(crate) const SHAPE: &str = "the sum's shape depends on the term to remove";
