//! The biases of a group of sites, made once for sites that can share them.

use posenc_ir::{DType, Emitter, Tensor, ValueId};

use super::cache::{ScoreCache, SiteScores};
use super::head_order;
use super::layout::{Layout, LayoutAxis};
use super::path::ScorePath;
use super::placement::{self, Placement};
use crate::attention::Site;
use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::plan::swap::spec::EncodingSpec;
use posenc_encodings::families::relative_bias;

/// The lowest number of half precision.
pub(crate) const LOWEST_HALF: f64 = -65504.0;

/// A bias, with the conditions for sharing it.
struct Made {
    grid: usize,
    layout: Layout,
    dtype: DType,
    by_key: bool,
    bias: ValueId,
}

/// The biases of a group.
pub(crate) struct Biases<'a, 'g> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) scores: &'a mut ScoreCache<'g>,
    pub(crate) new: &'a EncodingSpec,
    made: Vec<Made>,
}

impl<'a, 'g> Biases<'a, 'g> {
    pub(crate) fn new(
        context: &'a Context<'a>,
        scores: &'a mut ScoreCache<'g>,
        new: &'a EncodingSpec,
    ) -> Self {
        Self {
            context,
            scores,
            new,
            made: vec![],
        }
    }

    /// Adds the bias of a site in plain operators.
    pub(crate) fn add(&mut self, out: &mut Emitter<'_>, site: &Site) -> Result<(), RewriteError> {
        let context = self.context;
        let refuse = |why: &str| context.refuse(site.node, why);
        let SiteScores { path, grid } = self.scores.site_scores(site)?;
        head_order::check(context, site, &path)?;
        let place = placement::choose(context, site, &path, self.is_straight(context, &path))
            .ok_or_else(|| refuse("cannot locate the axes of heads in its scores"))?;
        let like = path.stages[place.stage].value;
        let bias = self.bias(out, site, grid, &place, like)?;
        match place.mask {
            Some(at) => {
                let mask = context.graph().node(at.node).input(at.slot());
                let mask = mask.ok_or_else(|| refuse("its mask is missing"))?;
                let merged = self.merged(out, site, mask, bias);
                out.redirect_use(mask, at, merged)?;
            }
            None => {
                let sum = out.op("Add", &[like, bias]);
                for at in path.uses(context, site, like) {
                    out.redirect_use(like, at, sum)?;
                }
            }
        }
        Ok(())
    }

    /// Whether the bias can depend on the key only, as it differs by a constant for each query, and
    /// the type is precise enough for large numbers.
    fn is_straight(&self, context: &Context<'_>, path: &ScorePath) -> bool {
        let wide = |v| matches!(context.dtype(v), DType::F32 | DType::F64);
        let line = matches!(self.new, EncodingSpec::Alibi(alibi) if alibi.symmetric != Some(true));
        line && path.stages.iter().all(|s| wide(s.value))
    }

    /// The mask with the bias added; once for masks of the same origin.
    pub(crate) fn merged(
        &mut self,
        out: &mut Emitter<'_>,
        site: &Site,
        mask: ValueId,
        bias: ValueId,
    ) -> ValueId {
        let context = self.context;
        let key = (self.scores.origin(site, mask), bias, site.scope);
        if let Some((_, merged)) = self.scores.masks.iter().find(|(k, _)| *k == key) {
            return *merged;
        }
        let mut merged = out.op("Add", &[mask, bias]);
        if context.dtype(mask) == DType::F16 && self.scores.hides_with_lowest(mask) {
            let lowest = out.scalar("lowest", DType::F16, LOWEST_HALF);
            merged = out.op("Max", &[merged, lowest]);
        }
        self.scores.masks.push((key, merged));
        merged
    }

    /// The bias in the layout of a placement; `like` has that layout.
    pub(crate) fn bias(
        &mut self,
        out: &mut Emitter<'_>,
        site: &Site,
        grid: usize,
        place: &Placement,
        like: ValueId,
    ) -> Result<ValueId, RewriteError> {
        let dtype = self.context.dtype(like);
        let known = self.made.iter().find(|m| {
            (m.grid, m.dtype, m.by_key) == (grid, dtype, place.by_key) && m.layout == place.layout
        });
        if let Some(known) = known {
            return Ok(known.bias);
        }
        let layout = place.layout.clone();
        let (bias, axes) = self.make(out, site, grid, place, dtype)?;
        let bias = layout.bring(out, self.context.opset(), bias, &axes, like);
        self.made.push(Made {
            grid,
            layout,
            dtype,
            by_key: place.by_key,
            bias,
        });
        Ok(bias)
    }

    /// The bias as it is computed, with its axes.
    fn make(
        &mut self,
        out: &mut Emitter<'_>,
        site: &Site,
        grid: usize,
        place: &Placement,
        dtype: DType,
    ) -> Result<(ValueId, Vec<LayoutAxis>), RewriteError> {
        let opset = self.context.opset();
        let mut lead = place.layout.lead();
        let table = self.table(out, site, &lead, dtype)?;
        let grids = &mut self.scores.grids;
        let distances = if place.by_key {
            grids.key_indices(out, grid)
        } else {
            grids.distances(out, grid)
        };
        let ragged = grids.is_ragged(grid);
        let (bias, mut axes, sequences) = match (self.new, table) {
            (EncodingSpec::Alibi(alibi), _) => {
                let heads = lead.len();
                // An axis for the sequences after the heads.
                lead.extend(ragged.then_some(1));
                let bias = alibi.emit(out, distances, &lead, dtype);
                (Some(bias), place.layout.heads_first(), heads)
            }
            (EncodingSpec::T5Bias { bias, .. }, Some(table)) => (
                bias.emit(out, opset, distances, table),
                place.layout.heads_last(),
                0,
            ),
            (EncodingSpec::RelativeBias { max_distance, .. }, Some(table)) => (
                relative_bias::emit::emit(out, opset, distances, *max_distance, table),
                place.layout.heads_last(),
                0,
            ),
            _ => (None, vec![], 0),
        };
        if ragged {
            axes.insert(sequences, LayoutAxis::Sequence);
        }
        let bias = bias.ok_or_else(|| self.context.refuse(site.node, "its bias has no formula"))?;
        Ok((bias, axes))
    }

    /// The table `[rows, heads..]` of a bias that has one, in the main graph, which bodies share.
    fn table(
        &self,
        out: &mut Emitter<'_>,
        site: &Site,
        lead: &[usize],
        dtype: DType,
    ) -> Result<Option<ValueId>, RewriteError> {
        let (label, rows, heads, table) = match self.new {
            EncodingSpec::T5Bias { bias, table } => (
                "relative_attention_bias",
                bias.num_buckets,
                bias.heads,
                table,
            ),
            EncodingSpec::RelativeBias {
                max_distance,
                heads,
                table,
            } => ("relative_bias", 2 * max_distance + 1, *heads, table),
            _ => return Ok(None),
        };
        let dims = [&[rows], lead].concat();
        let table = table.tensor(dtype, &[rows, heads])?;
        let table = Tensor::new(dtype, dims, table.bytes().clone());
        let table = table.ok_or_else(|| {
            self.context
                .refuse(site.node, "the table does not fit its heads")
        })?;
        out.set_scope(self.context.graph().main());
        let table = out.constant(label, table);
        out.set_scope(site.scope);
        Ok(Some(table))
    }
}
