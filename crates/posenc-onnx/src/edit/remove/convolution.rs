//! Removes convolutions that are added to their input.

use std::collections::BTreeMap;

use posenc_ir::{Emitter, Use};

use super::fused;
use super::remainder::Remainder;
use super::sum::SHAPE;
use crate::detect::context::Context;
use crate::edit::remove::replacements::Replacements;
use crate::error::RewriteError;

/// Replaces the sum of the convolution and its input by the input. `at` is the use by which the
/// convolution enters the sum.
pub(crate) fn remove(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    replacements: &mut Replacements<'_>,
    at: Use,
) -> Result<(), RewriteError> {
    let node = context.graph().node(at.node);
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
