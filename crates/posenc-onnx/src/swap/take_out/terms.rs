//! Stub.

use posenc_ir::Emitter;

use crate::encoding::Finding;
use crate::rewrite::RewriteError;
use crate::swap::Ground;

pub(super) fn take_out(
    out: &mut Emitter<'_>,
    ground: &Ground<'_>,
    finding: &Finding,
    sites: &[usize],
) -> Result<(), RewriteError> {
    let _ = out;
    let node = ground.site(sites[0]).node;
    Err(ground.refuse(
        node,
        format!("{} cannot be taken out yet", finding.encoding.kind()),
    ))
}
