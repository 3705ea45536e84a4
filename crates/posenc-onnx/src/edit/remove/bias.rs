//! Biases of the scores: what hides pairs stays, what moves scores goes.
//!
//! Each use at which a value without content enters between product and softmax is looked at for
//! itself: a bias gives way, a mask stays, and where both were joined before they entered, the use
//! comes to read the mask alone, which all sites share that shared the old value.

mod fused;
mod classifier;
mod operator_copy;
pub mod splitter;
#[cfg(test)]
mod tests;

use posenc_ir::{Emitter, ScopeId, Use, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::attention::Site;
use crate::attention::scores::{entries, way};
use crate::detect::context::Context;
use crate::edit::remove::broadcast::broadcast;
use crate::detect::finding::Finding;
use crate::edit::remove::zero_propagation::ZeroPropagation;
use crate::error::RewriteError;
#[cfg(test)]
pub(crate) use classifier::padding_with_holes;
use splitter::BiasSplitter;

/// Whether what was found enters between product and softmax.
pub(crate) fn is_bias(context: &Context<'_>, finding: &Finding) -> bool {
    let found = context.found;
    let Some(site) = finding.sites.first() else {
        return false;
    };
    let entries = entries(
        context.graph(),
        &found.classes,
        &found.trace,
        context.site(*site),
    );
    let mut own = finding.entries.iter();
    own.any(|entry| entries.contains(entry))
}

/// Takes biases out of the scores of sites.
pub(crate) struct Biases<'a> {
    context: Context<'a>,
    splitter: BiasSplitter<'a>,
    /// Masks as fused operators take them, by scope and by what they take the place of.
    fitted: FxHashMap<(ScopeId, ValueId), ValueId>,
}

impl<'a> Biases<'a> {
    pub(crate) fn new(context: &Context<'a>) -> Self {
        Self {
            context: *context,
            splitter: BiasSplitter::new(context),
            fitted: FxHashMap::default(),
        }
    }

    /// # Errors
    /// Where bias and mask cannot be told apart, or nothing is found that could go.
    pub(crate) fn remove(
        &mut self,
        out: &mut Emitter<'_>,
        zeros: &mut ZeroPropagation<'_>,
        site: &Site,
    ) -> Result<(), RewriteError> {
        let (graph, found) = (self.context.graph(), self.context.found);
        let way = way(graph, &found.classes, site);
        let mut changed = false;
        for entry in entries(graph, &found.classes, &found.trace, site) {
            let Some(value) = graph.node(entry.node).input(entry.slot()) else {
                continue;
            };
            changed |= match site.product {
                Some(_) => {
                    let joins = Joins { site, way: &way };
                    self.at(out, zeros, &joins, entry, value)?
                }
                None => self.fused(out, site, entry, value)?,
            };
        }
        match changed {
            true => Ok(()),
            false => {
                let why = "where the bias of its scores enters cannot be told";
                Err(self.context.refuse(site.node, why))
            }
        }
    }

    /// Takes out what is bias of a value that enters; whether anything was.
    fn at(
        &mut self,
        out: &mut Emitter<'_>,
        zeros: &mut ZeroPropagation<'_>,
        joins: &Joins<'_>,
        entry: Use,
        value: ValueId,
    ) -> Result<bool, RewriteError> {
        let context = self.context;
        let graph = context.graph();
        let node = graph.node(entry.node);
        let others = || (0..node.inputs().len()).filter(|slot| *slot != entry.slot());
        let content = others()
            .filter_map(|slot| node.input(slot))
            .find(|v| context.is_content(*v));
        let (Some(content), Some(sum)) = (content, node.output(0)) else {
            return Ok(false);
        };
        let joined = match joins.way.contains(&content) {
            true => joins.tells_keys(&context, value, sum) != Some(false),
            // A bias may join other content before both join the scores.
            false => joins.is_by_key(&context, value),
        };
        let factor = match node.op() {
            "Add" | "Sum" if joined => 1.0,
            "Sub" if joined && entry.slot() == 1 => -1.0,
            // Content scales the bias before it joins the scores.
            "Mul" if joins.scales_keys(&context, value, content) => 1.0,
            _ => return Ok(false),
        };
        let Some(left) = self.splitter.mask_part(out, value, factor)? else {
            zeros.add_zeros(&[entry]);
            return Ok(true);
        };
        if left.value == value {
            return Ok(false);
        }
        let fits = context
            .dims(content)
            .and_then(|dims| broadcast(dims, &left.dims));
        if fits.as_deref() != context.dims(sum) {
            let why = "the bias here gives the scores their shape";
            return Err(context.refuse(entry.node, why));
        }
        zeros.replace_input(entry, left.value, left.dims);
        Ok(true)
    }
}

/// What joins the scores of a site.
struct Joins<'s> {
    site: &'s Site,
    /// The way from the product to the softmax.
    way: &'s FxHashSet<ValueId>,
}

impl Joins<'_> {
    /// Whether a summand may differ from key to key, as its shape tells: what does not is nothing
    /// to a softmax. `None` where keys stand elsewhere in the sum.
    fn tells_keys(&self, context: &Context<'_>, value: ValueId, sum: ValueId) -> Option<bool> {
        let all = self.keys(context);
        let same = all.is_some() && self.along(context, sum) == all;
        same.then(|| self.along(context, value).is_some_and(|n| n > 1))
    }

    /// Whether numbers that content scales differ from key to key, and the content does not.
    fn scales_keys(&self, context: &Context<'_>, value: ValueId, content: ValueId) -> bool {
        let alone = self.along(context, content).is_none_or(|n| n == 1);
        alone && self.is_by_key(context, value)
    }

    /// Whether a value has a number for each key.
    fn is_by_key(&self, context: &Context<'_>, value: ValueId) -> bool {
        let all = self.keys(context);
        all.is_some() && self.along(context, value) == all
    }

    /// The number of keys.
    fn keys(&self, context: &Context<'_>) -> Option<usize> {
        let key = &self.site.key;
        context.dims(key.value)?.get(key.lane.sequence).copied()
    }

    /// The length of a value along the axis on which keys stand in the scores, from the end.
    fn along(&self, context: &Context<'_>, value: ValueId) -> Option<usize> {
        let [_, axis] = self.site.plane?;
        let from_end = context.dims(self.site.scores?)?.len().checked_sub(axis)?;
        let dims = context.dims(value)?;
        dims.get(dims.len().checked_sub(from_end)?).copied()
    }
}
