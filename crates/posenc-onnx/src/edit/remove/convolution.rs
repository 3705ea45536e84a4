//! Convolutions that are added to their input.

use std::collections::BTreeMap;

use posenc_ir::{Emitter, Use};

use super::fused;
use super::remainder::Remainder;
use crate::detect::context::Context;
use crate::edit::remove::replacements::Replacements;
use crate::error::RewriteError;

/// Lets what the branch is added to stand in for the sum; `at` is where the branch enters.
pub(crate) fn remove(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    replacements: &mut Replacements<'_>,
    at: Use,
) -> Result<(), RewriteError> {
    let node = context.graph().node(at.node);
    if !node.is("Add") {
        out.set_scope(node.scope());
        let left = BTreeMap::from([(at.slot(), Remainder::Nothing)]);
        return fused::skip(out, context, replacements, at.node, &left);
    }
    let other = node.input(usize::from(at.slot() == 0));
    match other.zip(node.output(0)) {
        Some((other, sum)) if context.dims(other) == context.dims(sum) => {
            replacements.replace(sum, other);
            Ok(())
        }
        _ => {
            let why = "what the convolution is added to has another shape than the sum";
            Err(context.refuse(at.node, why))
        }
    }
}
