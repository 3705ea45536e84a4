//! Graphs that do not encode positions, as those of embeddings or of a head on top of others.

use posenc_ir::Model;

use super::entries;
use crate::detect::branches::branches;
use crate::detect::{Found, Options};
use crate::graph::mixing::Mixing;
use crate::plan::unread::of_branch;
use crate::spelling;

/// Whether nothing in a model can encode a position: no encoding was found, everything was read, and
/// outside of attention tokens meet in nothing but means and sums.
pub(crate) fn encodes_no_position(model: &Model, options: &Options) -> bool {
    let (read, error) = spelling::as_read(model, &options.roles);
    let read = read.as_ref().unwrap_or(model);
    error.is_none()
        && branches(read, options)
            .iter()
            .all(|branch| is_without(read, &branch.found))
}

fn is_without(model: &Model, found: &Found) -> bool {
    let mixes = found.mixers.iter().any(|m| m.mixing != Mixing::Pooling);
    !mixes
        && entries(model, found).is_empty()
        && of_branch(model, found).is_empty()
        && found.axial.is_empty()
}
