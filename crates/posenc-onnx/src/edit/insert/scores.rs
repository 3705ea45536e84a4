//! Putting biases on the scores: linear, bucketed and clipped ones.
//!
//! Distances, biases and masks that biases were added to are made once for all sites that can
//! share them.

mod biases;
mod fused;
pub(crate) mod grid;
pub(crate) mod layout;
mod masks;
pub(crate) mod order;
mod place;
#[cfg(test)]
mod tests;
mod way;

use posenc_ir::{Emitter, NodeId, ScopeId, ValueId};

use super::axes::Axes;
use super::terms::Shared;
use crate::attention::Site;
use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::graph::signature::Signatures;
use crate::plan::swap::Group;
use crate::plan::swap::spec::{BiasSpec, EncodingSpec};
use biases::Biases;
use grid::Grids;
use masks::Origin;
use way::Way;

/// Distances and masks that sites share.
pub(crate) struct Scores<'a> {
    context: &'a Context<'a>,
    axes: &'a Axes<'a>,
    pub(crate) grids: Grids<'a>,
    signatures: Signatures,
    /// Masks with a bias on them, by what they were made of.
    masks: Vec<((Origin, ValueId, ScopeId), ValueId)>,
    /// What terms share.
    pub(crate) shared: Vec<(Shared, ValueId)>,
    /// What is done already: the body of a loop is a site for every turn.
    done: Vec<(NodeId, EncodingSpec)>,
}

impl<'a> Scores<'a> {
    pub(crate) fn new(axes: &'a Axes<'a>) -> Self {
        Self {
            context: axes.context,
            axes,
            grids: Grids::new(axes),
            signatures: Signatures::default(),
            masks: vec![],
            shared: vec![],
            done: vec![],
        }
    }

    /// Where the scores of a site in plain operators are, and how many.
    ///
    /// # Errors
    /// Where that cannot be told.
    pub(crate) fn spot(&mut self, site: &Site) -> Result<Spot, RewriteError> {
        let context = self.context;
        let way = Way::of(context, site).ok_or_else(|| {
            let why = "the queries of its scores cannot be told from other axes";
            context.refuse(site.node, why)
        })?;
        let counts = grid::counts(self.axes, site, &way)?;
        let grid = self.grids.of(site, counts);
        Ok(Spot { way, grid })
    }

    /// Whether something is to be put in at a site: not where another turn of its loop has done so.
    ///
    /// # Errors
    /// Where that was something else.
    pub(crate) fn is_open(
        &mut self,
        site: &Site,
        new: &EncodingSpec,
    ) -> Result<bool, RewriteError> {
        match self.done.iter().find(|(node, _)| *node == site.node) {
            Some((_, before)) if before == new => Ok(false),
            Some(_) => {
                let why = "one node serves several layers, which are to differ now";
                Err(self.context.refuse(site.node, why))
            }
            None => {
                self.done.push((site.node, new.clone()));
                Ok(true)
            }
        }
    }
}

/// The scores of a site.
pub(crate) struct Spot {
    pub(crate) way: Way,
    /// The number of their grid.
    pub(crate) grid: usize,
}

/// Puts the biases of a group on the scores of its sites.
pub(crate) fn insert(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    scores: &mut Scores<'_>,
    group: &Group,
    spec: &BiasSpec,
) -> Result<(), RewriteError> {
    let mut biases = Biases::new(context, scores, spec)?;
    for site in &group.sites {
        let site = context.site(*site);
        if !biases.scores.is_open(site, &group.new)? {
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
