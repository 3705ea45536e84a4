//! Values that all sites of a graph share: distances, and masks with a bias.

use posenc_ir::{DType, NodeId, ScopeId, ValueId};

use super::grid::{self, Grids};
use super::layout::Layout;
use super::path::ScorePath;
use crate::attention::Site;
use crate::detect::context::Context;
use crate::edit::insert::axes::Axes;
use crate::error::RewriteError;
use crate::graph::signature::Signatures;
use crate::plan::swap::spec::EncodingSpec;

/// Values that all sites of a graph share.
pub(crate) struct ScoreCache<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) axes: &'a Axes<'a>,
    pub(crate) grids: Grids<'a>,
    pub(crate) signatures: Signatures,
    /// Masks with a bias: the mask's origin, the bias and the scope, with the sum.
    pub(crate) masks: Vec<((MaskOrigin, ValueId, ScopeId), ValueId)>,
    /// Values that terms share.
    pub(crate) shared: Vec<(TermKey, ValueId)>,
    /// Nodes that are done. The body of a loop is a site for every iteration.
    done: Vec<(NodeId, EncodingSpec)>,
}

/// What a mask is computed from. Masks of the same origin contain the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MaskOrigin {
    /// The signature of the operators that compute it.
    Computed(usize),
    /// Content, which equals nothing but itself.
    Content(ValueId),
}

/// A value that terms share, whatever their tables.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TermKey {
    /// The row of each pair in a table of `2k + 1` rows.
    Rows { grid: usize, k: i64 },
    /// Sines and cosines of distances.
    Code {
        grid: usize,
        dim: usize,
        dtype: DType,
    },
    /// The index of the distance of each pair among all distances.
    Places { grid: usize, layout: Layout },
}

/// The scores of a site.
pub(crate) struct SiteScores {
    pub(crate) path: ScorePath,
    /// The index of their grid.
    pub(crate) grid: usize,
}

impl<'a> ScoreCache<'a> {
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

    /// The scores of a site in plain operators.
    ///
    /// # Errors
    /// If the axes of queries and keys are not known.
    pub(crate) fn site_scores(&mut self, site: &Site) -> Result<SiteScores, RewriteError> {
        let context = self.context;
        let path = ScorePath::of(context, site).ok_or_else(|| {
            let why = "cannot determine the axis of queries in the scores";
            context.refuse(site.node, why)
        })?;
        let counts = grid::counts(self.axes, site, &path)?;
        let grid = self.grids.of(site, counts);
        Ok(SiteScores { path, grid })
    }

    /// Claims a site for an encoding: `false` if another iteration of its loop has inserted it.
    ///
    /// # Errors
    /// If another encoding was inserted.
    pub(crate) fn claim(&mut self, site: &Site, new: &EncodingSpec) -> Result<bool, RewriteError> {
        match self.done.iter().find(|(node, _)| *node == site.node) {
            Some((_, before)) if before == new => Ok(false),
            Some(_) => {
                let why = "one node serves several layers, which cannot get different encodings";
                Err(self.context.refuse(site.node, why))
            }
            None => {
                self.done.push((site.node, new.clone()));
                Ok(true)
            }
        }
    }
}
