//! Stub.

use posenc_ir::Emitter;

use crate::detect::RotarySite;
use crate::rewrite::RewriteError;
use crate::swap::Ground;

pub(super) fn take_out(
    out: &mut Emitter<'_>,
    ground: &Ground<'_>,
    rotary: &RotarySite,
) -> Result<(), RewriteError> {
    let _ = out;
    Err(ground.refuse(rotary.node, "rope cannot be taken out yet"))
}
