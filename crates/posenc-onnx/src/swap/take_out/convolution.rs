//! Convolutions that are added to their input.

use std::collections::BTreeMap;

use posenc_ir::{Emitter, Use};

use super::fused;
use super::gone::Gone;
use super::rest::Rest;
use crate::rewrite::RewriteError;
use crate::swap::Ground;

/// Lets what the branch is added to stand in for the sum; `at` is where the branch enters.
pub(super) fn take_out(
    out: &mut Emitter<'_>,
    ground: &Ground<'_>,
    gone: &mut Gone<'_>,
    at: Use,
) -> Result<(), RewriteError> {
    let node = ground.graph().node(at.node);
    if !node.is("Add") {
        out.set_scope(node.scope());
        let left = BTreeMap::from([(at.slot(), Rest::Nothing)]);
        return fused::skip(out, ground, gone, at.node, &left);
    }
    let other = node.input(usize::from(at.slot() == 0));
    match other.zip(node.output(0)) {
        Some((other, sum)) if ground.dims(other) == ground.dims(sum) => {
            gone.replace(sum, other);
            Ok(())
        }
        _ => {
            let why = "what the convolution is added to has another shape than the sum";
            Err(ground.refuse(at.node, why))
        }
    }
}
