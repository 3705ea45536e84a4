//! Stub.

use posenc_ir::Emitter;

use super::scores::Scores;
use crate::rewrite::RewriteError;
use crate::swap::{Ground, Group};

pub(super) fn put_in(
    out: &mut Emitter<'_>,
    ground: &Ground<'_>,
    scores: &mut Scores<'_>,
    group: &Group,
) -> Result<(), RewriteError> {
    let _ = (out, scores);
    let node = ground.site(group.sites[0]).node;
    Err(ground.refuse(node, format!("{} cannot be put in yet", group.new.kind())))
}
