//! Removes biases from the scores and keeps masks.
//!
//! Every use by which a value without content enters between product and softmax is examined: a
//! bias is removed, a mask is kept, and a combination of both is replaced by the mask, which is
//! shared by all sites that shared the combination.

mod classifier;
mod fused;
mod operator_copy;
mod splitter;
#[cfg(test)]
mod tests;

use posenc_ir::{Emitter, ScopeId, Use, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::attention::Site;
use crate::attention::scores::{entries, product_path};
use crate::detect::context::Context;
use crate::detect::finding::Finding;
use crate::edit::remove::broadcast::broadcast;
use crate::edit::remove::zero_propagation::ZeroPropagation;
use crate::error::RewriteError;
#[cfg(test)]
pub(crate) use classifier::padding_seeds;
use splitter::BiasSplitter;

/// Whether a finding enters between product and softmax.
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

/// Removes biases from the scores of sites.
pub(crate) struct Biases<'a> {
    context: Context<'a>,
    splitter: BiasSplitter<'a>,
    /// Masks for fused operators, by scope and by the value that they replace.
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
    /// If bias and mask cannot be separated, or no bias is found.
    pub(crate) fn remove(
        &mut self,
        out: &mut Emitter<'_>,
        zeros: &mut ZeroPropagation<'_>,
        site: &Site,
    ) -> Result<(), RewriteError> {
        let (graph, found) = (self.context.graph(), self.context.found);
        let path = product_path(graph, &found.classes, site);
        let mut changed = false;
        for entry in entries(graph, &found.classes, &found.trace, site) {
            let Some(value) = graph.node(entry.node).input(entry.slot()) else {
                continue;
            };
            changed |= if entry.node == site.node {
                self.remove_fused(out, site, entry, value)?
            } else {
                let shapes = SiteShapes { site, path: &path };
                self.remove_at(out, zeros, &shapes, entry, value)?
            };
        }
        if !changed {
            let why = "what follows the position here is not added to the scores, and cannot be taken out";
            return Err(self.context.refuse(site.node, why));
        }
        Ok(())
    }

    /// Removes the bias from a value that enters. Returns whether there was one.
    fn remove_at(
        &mut self,
        out: &mut Emitter<'_>,
        zeros: &mut ZeroPropagation<'_>,
        shapes: &SiteShapes<'_>,
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
        let joined = if shapes.path.contains(&content) {
            shapes.varies_by_key(&context, value, sum) != Some(false)
        } else {
            // A bias may be added to other content before both are added to the scores.
            shapes.is_by_key(&context, value)
        };
        let factor = match node.op() {
            "Add" | "Sum" if joined => 1.0,
            "Sub" if joined && entry.slot() == 1 => -1.0,
            // Content scales the bias before it is added to the scores.
            "Mul" if shapes.scales_keys(&context, value, content) => 1.0,
            _ => return Ok(false),
        };
        let Some(mask) = self.splitter.mask_part(out, value, factor)? else {
            zeros.add_zeros(&[entry]);
            return Ok(true);
        };
        if mask.value == value {
            return Ok(false);
        }
        let fits = context
            .dims(content)
            .and_then(|dims| broadcast(dims, &mask.dims));
        if fits.as_deref() != context.dims(sum) {
            let why = "cannot remove the bias: the shape of the scores depends on it";
            return Err(context.refuse(entry.node, why));
        }
        zeros.replace_input(entry, mask.value, mask.dims);
        Ok(true)
    }
}

/// Decides whether values that enter the scores of a site can be biases.
struct SiteShapes<'s> {
    site: &'s Site,
    /// The values from the product to the softmax.
    path: &'s FxHashSet<ValueId>,
}

impl SiteShapes<'_> {
    /// Whether the shape of a summand lets it differ from key to key; one that does not has no
    /// effect on a softmax. `None` if the axis of keys in the sum is not known.
    fn varies_by_key(&self, context: &Context<'_>, value: ValueId, sum: ValueId) -> Option<bool> {
        let all = self.site.keys(&context.found.trace);
        let known = all.is_some() && self.along(context, sum) == all;
        known.then(|| self.along(context, value).is_some_and(|n| n > 1))
    }

    /// Whether a value that is multiplied with content may differ from key to key, and the content
    /// does not.
    fn scales_keys(&self, context: &Context<'_>, value: ValueId, content: ValueId) -> bool {
        let same = self.along(context, content).is_none_or(|n| n == 1);
        same && self.is_by_key(context, value)
    }

    /// Whether a value has a number for each key.
    fn is_by_key(&self, context: &Context<'_>, value: ValueId) -> bool {
        let all = self.site.keys(&context.found.trace);
        all.is_some() && self.along(context, value) == all
    }

    /// The length of a value along the axis of keys, counted from the last axis of the scores.
    fn along(&self, context: &Context<'_>, value: ValueId) -> Option<usize> {
        let from_end = self.site.keys_from_end(&context.found.trace)?;
        let dims = context.dims(value)?;
        dims.get(dims.len().checked_sub(from_end)?).copied()
    }
}
