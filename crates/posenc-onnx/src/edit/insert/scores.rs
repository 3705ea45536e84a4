//! Adds biases to the scores of attention.
//!
//! Distances, biases and masks with a bias are made once for all sites that can share them.

mod biases;
pub(crate) mod cache;
mod fused;
pub(crate) mod grid;
pub(crate) mod head_order;
pub(crate) mod layout;
mod masks;
mod path;
mod placement;
#[cfg(test)]
mod tests;

use posenc_ir::Emitter;

use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::plan::swap::Group;
use crate::plan::swap::spec::BiasSpec;
use biases::Biases;
use cache::ScoreCache;

/// Adds the biases of a group to the scores of its sites.
pub(crate) fn insert(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    scores: &mut ScoreCache<'_>,
    group: &Group,
    spec: &BiasSpec,
) -> Result<(), RewriteError> {
    let mut biases = Biases::new(context, scores, spec)?;
    for site in &group.sites {
        let site = context.site(*site);
        if !biases.scores.claim(site, &group.new)? {
            continue;
        }
        out.set_scope(site.scope);
        match site.scores {
            Some(_) => biases.add(out, site)?,
            None => biases.fuse(out, site)?,
        }
    }
    out.set_scope(context.graph().main());
    Ok(())
}
