//! Putting biases on the scores: linear, bucketed and clipped ones.
//!
//! Distances, biases and masks that biases were added to are made once for all sites that can
//! share them.

mod fused;
pub(super) mod grid;
pub(super) mod layout;
mod place;
#[cfg(test)]
mod tests;
mod way;

use posenc_ir::{DType, Emitter, NodeId, ScopeId, Tensor, ValueId};

use super::terms::Shared;
use crate::attention::Site;
use crate::lane::Lane;
use crate::region::Region;
use crate::rewrite::RewriteError;
use crate::signature::{Count, Signatures};
use crate::swap::{Ground, Group, New, Numbers};
use grid::{Grid, Grids, Lengths, length};
use layout::{Axis, Layout};
use place::Place;
use way::Way;

/// The largest number of half precision, with a minus.
const LOWEST_HALF: f64 = -65504.0;

/// A bias on masks that hide with numbers below this could overflow.
const NEAR_LOWEST: f64 = -6e4;

/// Distances and masks that sites share.
pub(super) struct Scores<'a> {
    ground: &'a Ground<'a>,
    pub(super) grids: Grids<'a>,
    signatures: Signatures,
    /// Masks with a bias on them, by what they were made of.
    masks: Vec<((usize, ValueId, ScopeId), ValueId)>,
    /// What terms share.
    pub(super) shared: Vec<(Shared, ValueId)>,
    /// What is done already: the body of a loop is a site for every turn.
    done: Vec<(NodeId, New)>,
}

impl<'a> Scores<'a> {
    pub(super) fn new(ground: &'a Ground<'a>) -> Self {
        Self {
            ground,
            grids: Grids::new(ground),
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
    pub(super) fn spot(&mut self, site: &Site) -> Result<Spot, RewriteError> {
        let ground = self.ground;
        let way = Way::of(ground, site).ok_or_else(|| {
            let why = "the queries of its scores cannot be told from other axes";
            ground.refuse(site.node, why)
        })?;
        let grid = grid_of(ground, &mut self.grids, site, &way)?;
        Ok(Spot { way, grid })
    }

    /// Whether something is to be put in at a site: not where another turn of its loop has done so.
    ///
    /// # Errors
    /// Where that was something else.
    pub(super) fn is_open(&mut self, site: &Site, new: &New) -> Result<bool, RewriteError> {
        match self.done.iter().find(|(node, _)| *node == site.node) {
            Some((_, before)) if before == new => Ok(false),
            Some(_) => {
                let why = "one node serves several layers, which are to differ now";
                Err(self.ground.refuse(site.node, why))
            }
            None => {
                self.done.push((site.node, new.clone()));
                Ok(true)
            }
        }
    }
}

/// The scores of a site.
pub(super) struct Spot {
    pub(super) way: Way,
    /// The number of their grid.
    pub(super) grid: usize,
}

/// A bias that was made, and what it was made for.
struct Made {
    grid: usize,
    layout: Layout,
    dtype: DType,
    by_key: bool,
    bias: ValueId,
}

/// Puts the biases of a group on the scores of its sites.
pub(super) fn put_in(
    out: &mut Emitter<'_>,
    ground: &Ground<'_>,
    scores: &mut Scores<'_>,
    group: &Group,
) -> Result<(), RewriteError> {
    let mut biases = Biases {
        ground,
        scores,
        new: &group.new,
        made: vec![],
    };
    for site in &group.sites {
        let site = ground.site(*site);
        if !biases.scores.is_open(site, &group.new)? {
            continue;
        }
        check_opset(ground, site, &group.new)?;
        out.set_scope(site.scope);
        match site.scores {
            Some(_) => biases.add(out, site)?,
            None => biases.fuse(out, site)?,
        }
    }
    out.set_scope(ground.graph().main());
    Ok(())
}

/// The operators that are put in have to be there.
pub(super) fn check_opset(ground: &Ground<'_>, site: &Site, new: &New) -> Result<(), RewriteError> {
    let least = match new {
        New::Alibi(_) | New::TransformerXl { .. } => 11,
        _ => 12,
    };
    match ground.model.opset() >= least {
        true => Ok(()),
        false => {
            let kind = new.kind();
            let why = format!("{kind} needs opset {least} or later; convert the model first");
            Err(ground.refuse(site.node, why))
        }
    }
}

/// The biases of a group.
struct Biases<'a, 'g> {
    ground: &'a Ground<'a>,
    scores: &'a mut Scores<'g>,
    new: &'a New,
    made: Vec<Made>,
}

impl Biases<'_, '_> {
    /// Adds the bias of a site in plain operators.
    fn add(&mut self, out: &mut Emitter<'_>, site: &Site) -> Result<(), RewriteError> {
        let ground = self.ground;
        let refuse = |why: &str| ground.refuse(site.node, why);
        let Spot { way, grid } = self.scores.spot(site)?;
        let place = place::choose(ground, site, &way, self.is_straight(ground, &way))
            .ok_or_else(|| refuse("the heads of its scores cannot be told from other axes"))?;
        let Place { layout, .. } = &place;
        if ground.model.opset() < 13 && !layout.is_plain() {
            let why = "heads that stand apart from queries and keys need opset 13 or later";
            return Err(refuse(why));
        }
        let like = way.stages[place.stage].value;
        let bias = self.bias(out, site, grid, &place, like)?;
        match place.mask {
            Some(at) => {
                let mask = ground.graph().node(at.node).input(at.slot());
                let mask = mask.ok_or_else(|| refuse("its mask is missing"))?;
                let merged = self.merged(out, site, mask, bias);
                out.redirect_use(mask, at, merged)?;
            }
            None => {
                let sum = out.op("Add", &[like, bias]);
                for at in way.uses(ground, site, like) {
                    out.redirect_use(like, at, sum)?;
                }
            }
        }
        Ok(())
    }

    /// Whether the bias of a key differs between queries by no more than a constant for each, and
    /// the type holds large numbers well.
    fn is_straight(&self, ground: &Ground<'_>, way: &Way) -> bool {
        let wide = |v| matches!(ground.dtype(v), DType::F32 | DType::F64);
        let line = matches!(self.new, New::Alibi(alibi) if alibi.symmetric != Some(true));
        line && way.stages.iter().all(|s| wide(s.value))
    }

    /// The mask with the bias on it; masks that are computed alike get it once.
    fn merged(
        &mut self,
        out: &mut Emitter<'_>,
        site: &Site,
        mask: ValueId,
        bias: ValueId,
    ) -> ValueId {
        let ground = self.ground;
        let computed = self.scores.computed(site, mask);
        let key = (computed, bias, site.scope);
        if let Some((_, merged)) = self.scores.masks.iter().find(|(k, _)| *k == key) {
            return *merged;
        }
        let mut merged = out.op("Add", &[mask, bias]);
        if ground.dtype(mask) == DType::F16 && self.scores.hides_with_lowest(mask) {
            let lowest = out.scalar("lowest", DType::F16, LOWEST_HALF);
            merged = out.op("Max", &[merged, lowest]);
        }
        self.scores.masks.push((key, merged));
        merged
    }

    /// The bias in the layout of a place, whose value is `like`.
    fn bias(
        &mut self,
        out: &mut Emitter<'_>,
        site: &Site,
        grid: usize,
        place: &Place,
        like: ValueId,
    ) -> Result<ValueId, RewriteError> {
        let dtype = self.ground.dtype(like);
        let known = self.made.iter().find(|m| {
            (m.grid, m.dtype, m.by_key) == (grid, dtype, place.by_key) && m.layout == place.layout
        });
        if let Some(known) = known {
            return Ok(known.bias);
        }
        let layout = place.layout.clone();
        let lead = layout.lead();
        let numbers = self.numbers(out, site, &lead, dtype)?;
        let grid_of_site = self.scores.grids.get(grid);
        let ragged = grid_of_site.is_ragged();
        let (bias, mut axes, sequences) = match numbers {
            Some(table) => (
                self.new.looked_up(out, grid_of_site, table),
                layout.heads_last(),
                0,
            ),
            None => {
                // Sequences stand behind the heads here.
                let lead = [&lead[..], if ragged { &[1] } else { &[] }].concat();
                (
                    self.new.line(out, grid_of_site, place.by_key, &lead, dtype),
                    layout.heads_first(),
                    lead.len().saturating_sub(1),
                )
            }
        };
        if ragged {
            axes.insert(sequences, Axis::Sequence);
        }
        let bias = bias.ok_or_else(|| self.ground.refuse(site.node, "its bias has no formula"))?;
        let bias = layout.bring(out, bias, &axes, like);
        self.made.push(Made {
            grid,
            layout,
            dtype,
            by_key: place.by_key,
            bias,
        });
        Ok(bias)
    }

    /// The table `[rows, heads..]` of a bias that has one; the bodies of a graph share it.
    fn numbers(
        &self,
        out: &mut Emitter<'_>,
        site: &Site,
        lead: &[usize],
        dtype: DType,
    ) -> Result<Option<ValueId>, RewriteError> {
        let (label, rows, heads, table) = match self.new {
            New::T5Bias { bias, table } => (
                "relative_attention_bias",
                bias.num_buckets,
                bias.heads,
                table,
            ),
            New::RelativeBias {
                max_distance,
                heads,
                table,
            } => ("relative_bias", 2 * max_distance + 1, *heads, table),
            _ => return Ok(None),
        };
        let dims = [&[rows], lead].concat();
        let table = shaped(table, dtype, &[rows, heads], &dims)?;
        let table = table.ok_or_else(|| self.ground.refuse(site.node, "its heads do not fit"))?;
        out.set_scope(self.ground.graph().main());
        let table = out.constant(label, table);
        out.set_scope(site.scope);
        Ok(Some(table))
    }
}

/// A table of these dimensions, in another shape of as many elements.
pub(super) fn shaped(
    numbers: &Numbers,
    dtype: DType,
    dims: &[usize],
    shape: &[usize],
) -> Result<Option<Tensor>, RewriteError> {
    let table = numbers.tensor(dtype, dims)?;
    Ok(Tensor::new(dtype, shape.to_vec(), table.bytes().clone()))
}

impl New {
    /// The biases of pairs from rows of a table, `[query, key, heads..]`.
    fn looked_up(&self, out: &mut Emitter<'_>, grid: &mut Grid, table: ValueId) -> Option<ValueId> {
        let distances = grid.distances(out);
        match self {
            Self::T5Bias { bias, .. } => bias.emit(out, distances, table),
            Self::RelativeBias { max_distance, .. } => {
                let k = i64::try_from(*max_distance).ok()?;
                let emit = crate::encodings::relative_bias::emit::emit;
                Some(emit(out, distances, k, table))
            }
            _ => None,
        }
    }

    /// Linear biases of pairs, or of keys, `[heads.., query, key]`.
    fn line(
        &self,
        out: &mut Emitter<'_>,
        grid: &mut Grid,
        by_key: bool,
        lead: &[usize],
        dtype: DType,
    ) -> Option<ValueId> {
        let Self::Alibi(alibi) = self else {
            return None;
        };
        let distances = match by_key {
            true => grid.places(out),
            false => grid.distances(out),
        };
        Some(alibi.emit(out, distances, lead, dtype))
    }
}

impl Scores<'_> {
    /// The number of a mask by how it is computed: layers that cut the same mask to the same
    /// length have equal ones.
    fn computed(&mut self, site: &Site, mask: ValueId) -> usize {
        let found = self.ground.found;
        let lane = Lane::of_sequence(0);
        let region = Region {
            // Nothing that masks are made of.
            input: site.product.unwrap_or(site.query.value),
            input_lane: lane,
            output: mask,
            output_lane: lane,
            entries: vec![],
            inside: None,
        };
        let count = |v: ValueId| match self.ground.is_content(v) {
            true => Count::Shape,
            false => Count::Origin,
        };
        let graph = self.ground.graph();
        self.signatures.region(graph, &region, &found.trace, count)
    }

    /// Whether a mask hides pairs with numbers from which a bias leads to −∞. Where every pair is
    /// seen in the trial run, it may.
    fn hides_with_lowest(&self, mask: ValueId) -> bool {
        let numbers = self.ground.found.trace.get(mask).to_f64();
        let Some(numbers) = numbers else {
            return true;
        };
        let low = |v: &&f64| **v < NEAR_LOWEST;
        let hidden = || numbers.iter().filter(low);
        hidden().all(|v| v.is_finite())
    }
}

/// The grid of a site in plain operators.
fn grid_of(
    ground: &Ground<'_>,
    grids: &mut Grids<'_>,
    site: &Site,
    way: &Way,
) -> Result<usize, RewriteError> {
    let refuse = |why: &str| ground.refuse(site.node, why);
    let keys_of =
        |o: &crate::attention::Operand| Some(*ground.dims(o.value)?.get(o.lane.sequence)?);
    let keys = keys_of(&site.key);
    // The first scores that have an axis of queries and one of keys to themselves.
    let stage = way.stages.iter().rev().find(|s| {
        let dims = ground.dims(s.value).unwrap_or_default();
        dims.get(s.plane[1]).copied() == keys
    });
    let stage = stage.ok_or_else(|| refuse("its scores are not those of its keys"))?;
    let dims = ground.dims(stage.value).unwrap_or_default();
    let size = |axis: usize| dims.get(axis).copied();
    let of = |operand: &crate::attention::Operand, axis: usize| {
        let own = keys_of(operand) == size(axis);
        match own {
            true => length(ground, operand.value, operand.lane.sequence),
            false => length(ground, stage.value, axis),
        }
    };
    let square = !site.past && size(stage.plane[0]) == size(stage.plane[1]);
    let queries = of(&site.query, stage.plane[0]);
    let keys = match square {
        true => queries.clone(),
        false => of(&site.key, stage.plane[1]),
    };
    if !square && !ends_with_queries(site) {
        let why = "where its queries stand among the keys cannot be told from lengths";
        return Err(refuse(why));
    }
    Ok(grids.of(
        site,
        Lengths {
            queries,
            keys,
            square,
            last: None,
        },
    ))
}

/// Whether no query is kept from the key of its own place, the last query being at the last key.
fn ends_with_queries(site: &Site) -> bool {
    let Some(plane) = &site.bias else {
        return true;
    };
    let (_, _, queries, keys) = plane.bias.dim();
    (0..queries).all(|i| {
        let own = i + plane.past;
        own >= keys || !plane.is_hidden([0, 0, i, own])
    })
}
