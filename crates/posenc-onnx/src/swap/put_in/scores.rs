//! Stub.

use posenc_ir::Emitter;

use crate::rewrite::RewriteError;
use crate::swap::{Ground, Group};

/// Distances and biases that sites share.
pub(super) struct Scores<'a> {
    ground: &'a Ground<'a>,
}

impl<'a> Scores<'a> {
    pub(super) fn new(ground: &'a Ground<'a>) -> Self {
        Self { ground }
    }
}

pub(super) fn put_in(
    out: &mut Emitter<'_>,
    ground: &Ground<'_>,
    scores: &mut Scores<'_>,
    group: &Group,
) -> Result<(), RewriteError> {
    let _ = (out, scores.ground);
    let node = ground.site(group.sites[0]).node;
    Err(ground.refuse(node, format!("{} cannot be put in yet", group.new.kind())))
}
