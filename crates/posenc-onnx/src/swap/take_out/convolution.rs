//! Convolutions that are added to their input.

use posenc_ir::Use;

use super::gone::Gone;
use crate::rewrite::RewriteError;
use crate::swap::Ground;

/// Lets what the branch is added to stand in for the sum; `at` is where the branch enters.
pub(super) fn take_out(
    ground: &Ground<'_>,
    gone: &mut Gone<'_>,
    at: Use,
) -> Result<(), RewriteError> {
    let node = ground.graph().node(at.node);
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
