//! The biases of a group of sites, made once for sites that can share them.

use ndarray::ArrayD;
use posenc_ir::{DType, Emitter, ScopeId, Tensor, ValueId};

use super::cache::{ScoreCache, SiteScores};
use super::grid::Grids;
use super::head_order;
use super::layout::{Layout, LayoutAxis};
use super::path::ScorePath;
use super::placement::{self, Placement};
use crate::attention::Site;
use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::plan::swap::spec::BiasSpec;
use posenc_encodings::bias::{BiasPorts, Order};
use posenc_encodings::opset::Opset;

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
    pub(crate) spec: &'a BiasSpec,
    /// The values of its learned tensors.
    tensors: Vec<ArrayD<f64>>,
    made: Vec<Made>,
}

impl<'a, 'g> Biases<'a, 'g> {
    pub(crate) fn new(
        context: &'a Context<'a>,
        scores: &'a mut ScoreCache<'g>,
        spec: &'a BiasSpec,
    ) -> Result<Self, RewriteError> {
        Ok(Self {
            context,
            scores,
            spec,
            tensors: spec.values()?,
            made: vec![],
        })
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
        self.spec.bias.is_straight() && path.stages.iter().all(|s| wide(s.value))
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
        let bias = &self.spec.bias;
        let lead = place.layout.lead();
        if lead.iter().product::<usize>() != bias.heads() {
            return Err(self.context.refuse(site.node, "its heads do not fit"));
        }
        let grids = &mut self.scores.grids;
        let by_sequence = grids.is_ragged(grid);
        let mut ports = Ports {
            opset: self.context.opset(),
            dtype,
            heads: &lead,
            grids,
            grid,
            by_key: place.by_key,
            scopes: [self.context.graph().main(), site.scope],
        };
        let made = bias.emit(out, &mut ports, &self.tensors);
        let made = made.ok_or_else(|| {
            let why = "its bias lacks a parameter that its formula needs";
            self.context.refuse(site.node, why)
        })?;
        let (mut axes, sequences) = match made.order {
            Order::HeadsFirst => (place.layout.heads_first(), lead.len()),
            Order::HeadsLast => (place.layout.heads_last(), 0),
        };
        if by_sequence {
            axes.insert(sequences, LayoutAxis::Sequence);
        }
        Ok((made.value, axes))
    }
}

/// The values around a bias.
struct Ports<'p, 'g> {
    opset: Opset,
    dtype: DType,
    heads: &'p [usize],
    grids: &'p mut Grids<'g>,
    grid: usize,
    by_key: bool,
    /// The main graph, and the scope of the site.
    scopes: [ScopeId; 2],
}

impl BiasPorts for Ports<'_, '_> {
    fn opset(&self) -> Opset {
        self.opset
    }

    fn dtype(&self) -> DType {
        self.dtype
    }

    fn heads(&self) -> &[usize] {
        self.heads
    }

    fn is_by_sequence(&self) -> bool {
        self.grids.is_ragged(self.grid)
    }

    fn distances(&mut self, out: &mut Emitter<'_>) -> ValueId {
        if self.by_key {
            self.grids.key_indices(out, self.grid)
        } else {
            self.grids.distances(out, self.grid)
        }
    }

    fn queries(&mut self, out: &mut Emitter<'_>) -> ValueId {
        self.grids.query_positions(out, self.grid)
    }

    fn constant(&mut self, out: &mut Emitter<'_>, label: &str, tensor: Tensor) -> ValueId {
        let [main, own] = self.scopes;
        out.set_scope(main);
        let constant = out.constant(label, tensor);
        out.set_scope(own);
        constant
    }
}
