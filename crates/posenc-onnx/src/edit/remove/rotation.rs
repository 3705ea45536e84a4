//! Removes rotations of queries and keys, and of values that are rotated with them.

mod layout_changes;
mod values;

use std::borrow::Cow;

use posenc_ir::{Attr, Emitter, NodeId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::detect::context::Context;
use crate::detect::rotary::site::ProbeMode;
use crate::edit::remove::replacements::Replacements;
use crate::error::RewriteError;
use crate::graph::dataflow::Class;
use crate::graph::region::Region;
use crate::plan::swap::SwapPlan;

/// A region that rotates queries, keys or values of selected sites.
pub(crate) struct RotatedRegion<'a> {
    region: Cow<'a, Region>,
    /// How detection probed it; `None` if it did not.
    mode: Option<ProbeMode>,
    /// One of its sites.
    site: usize,
}

/// The regions to remove, each once.
///
/// # Errors
/// If a site that is not selected shares one of them.
pub(crate) fn rotated_regions<'a>(
    context: &Context<'a>,
    plan: &SwapPlan,
) -> Result<Vec<RotatedRegion<'a>>, RewriteError> {
    let found = context.found;
    let rotary = found.rotary.iter().flat_map(|r| {
        let halves = [&r.query, &r.key];
        halves.map(|half| (r.site, &half.region, Some(half.rotation.mode)))
    });
    let axial = found.axial.iter().flat_map(|axial| {
        let site = axial.finding.sites.first();
        let each = axial.regions.iter().map(move |r| Some((*site?, r, None)));
        each.flatten()
    });
    let unknown = found.unfitted_rotations.iter();
    let unknown = unknown.flat_map(|(site, regions)| regions.iter().map(move |r| (*site, r, None)));
    let all: Vec<_> = rotary.chain(axial).chain(unknown).collect();
    let kept: FxHashMap<_, usize> = all
        .iter()
        .filter(|(site, ..)| !plan.has(*site))
        .map(|(site, region, _)| (region_key(region), *site))
        .collect();
    let mut seen = FxHashSet::default();
    let mut rotated = vec![];
    for (site, region, mode) in all {
        if !plan.has(site) || !seen.insert(region_key(region)) {
            continue;
        }
        if let Some(other) = kept.get(&region_key(region)) {
            let other = context.graph().place(context.site(*other).node);
            let why =
                format!("cannot remove its rotation: {other}, which is not selected, shares it");
            return Err(context.refuse(context.site(site).node, why));
        }
        let region = Cow::Borrowed(region);
        rotated.push(RotatedRegion { region, mode, site });
    }
    let mut sites: Vec<usize> = rotated.iter().map(|rotated| rotated.site).collect();
    sites.dedup();
    for site in sites {
        let values = values::rotated_values(context, context.site(site))?;
        let Some((region, mode)) = values.filter(|(region, _)| seen.insert(region_key(region)))
        else {
            continue;
        };
        rotated.push(RotatedRegion {
            region: Cow::Owned(region),
            mode,
            site,
        });
    }
    Ok(rotated)
}

/// Identifies a region: by the operator that rotates internally, or by its output.
fn region_key(region: &Region) -> RegionKey {
    let inside = region.entries.first().filter(|_| region.inside.is_some());
    inside.map_or(RegionKey::Output(region.output), |at| {
        RegionKey::Operator(at.node)
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RegionKey {
    Operator(NodeId),
    Output(ValueId),
}

impl RotatedRegion<'_> {
    /// The node at which it ends.
    pub(crate) fn node(&self, context: &Context<'_>) -> Option<NodeId> {
        match self.region.inside {
            Some(_) => self.region.entries.first().map(|at| at.node),
            None => context.graph().producer(self.region.output).map(|p| p.0),
        }
    }

    /// A mask, a condition or content of another kind that acts within the region and would be lost with it.
    fn other_operand(&self, context: &Context<'_>) -> Option<ValueId> {
        let classes = &context.found.classes;
        let others = self.region.others(context.graph(), classes);
        let mut others = others.into_iter().map(|(_, value)| value);
        others.find(|value| {
            let class = classes.of_value(*value);
            let is_known = class.has(Class::POSITION) || class.is_length();
            !is_known
        })
    }

    /// Replaces the output of the region by its input.
    pub(crate) fn remove(
        &self,
        out: &mut Emitter<'_>,
        context: &Context<'_>,
        replacements: &mut Replacements<'_>,
    ) -> Result<(), RewriteError> {
        let Some(id) = self.node(context) else {
            let why = "cannot remove its rotation: no node computes its output";
            return Err(context.refuse(context.site(self.site).node, why));
        };
        out.set_scope(context.graph().node(id).scope());
        if self.region.inside.is_some() {
            let same = OperatorInputs::default();
            return remove_from_operator(out, context, replacements, id, &same);
        }
        if let Some(other) = self.other_operand(context) {
            let name = context.graph().name(other);
            let why = format!(
                "cannot remove its rotation: it depends on {name} too, which is no position"
            );
            return Err(context.refuse(id, why));
        }
        let current = |value| replacements.current(value);
        let value = unrotated(out, context, &self.region, self.mode, current)?;
        let Some(value) = value else {
            let why = "cannot determine how its rotation reorders the features";
            return Err(context.refuse(id, why));
        };
        let to = self.region.output;
        replacements.replace(to, value);
        merge_transposes(out, context, replacements, to, value);
        Ok(())
    }
}

/// The output of a region as it would be without the rotation: in its order and type; `None` where the region
/// does something else apart from the rotation. `current` is what a value was replaced by.
pub(crate) fn unrotated(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    region: &Region,
    mode: Option<ProbeMode>,
    current: impl Fn(ValueId) -> ValueId,
) -> Result<Option<ValueId>, RewriteError> {
    let Some((from, changes)) = layout_changes::find(context, region, mode) else {
        return Ok(None);
    };
    let mut value = layout_changes::emit(out, context, &changes, current(from))?;
    let to = region.output;
    if context.dtype(from) != context.dtype(to) {
        value = out.cast(value, context.dtype(to));
    }
    Ok(Some(value))
}

/// Merges two transposes that were separated by the rotation.
fn merge_transposes(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    replacements: &mut Replacements<'_>,
    old: ValueId,
    new: ValueId,
) {
    let graph = context.graph();
    let transposed = |id: NodeId| {
        let node = graph.node(id);
        let order = node.is("Transpose").then(|| node.ints("perm").ok()?)??;
        Some((node, order))
    };
    let first = (new.index() < graph.value_count())
        .then(|| graph.producer(new))
        .flatten();
    let Some((first, inner)) = first.and_then(|(id, _)| transposed(id)) else {
        return;
    };
    for at in graph.uses(old) {
        let Some((second, outer)) = transposed(at.node) else {
            continue;
        };
        let at = |axis: &i64| inner.get(usize::try_from(*axis).ok()?).copied();
        let order: Option<Vec<i64>> = outer.iter().map(at).collect();
        let ends = first.input(0).zip(second.output(0)).zip(order);
        let Some(((from, to), order)) = ends.filter(|_| first.scope() == second.scope()) else {
            continue;
        };
        out.set_scope(second.scope());
        let from = replacements.current(from);
        let both = out.op_with("Transpose", &[from], &[("perm", Attr::Ints(order))]);
        replacements.replace(to, both);
    }
}

/// What an operator of attention reads in place of its inputs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OperatorInputs<'a> {
    /// Its first inputs.
    pub(crate) operands: &'a [ValueId],
    /// Slots that are left out beside those of the rotation.
    pub(crate) left_out: &'a [usize],
}

/// Replaces an operator that rotates internally by one that does not, without the inputs for cos,
/// sin and positions. Its first inputs become `operands`, as far as these are given.
pub(crate) fn remove_from_operator(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    replacements: &mut Replacements<'_>,
    id: NodeId,
    changed: &OperatorInputs<'_>,
) -> Result<(), RewriteError> {
    let node = context.graph().node(id);
    let of_rotation = match node.op() {
        "SparseAttention" => 9..11,
        "PagedAttention" => 8..10,
        _ => 7..10,
    };
    let inputs = node.inputs().iter().enumerate();
    let mut inputs: Vec<_> = inputs
        .map(|(slot, v)| {
            let is_left_out = of_rotation.contains(&slot) || changed.left_out.contains(&slot);
            v.filter(|_| !is_left_out)
        })
        .map(|v| v.map(|v| replacements.current(v)))
        .collect();
    for (input, operand) in inputs.iter_mut().zip(changed.operands) {
        *input = Some(*operand);
    }
    while inputs.pop_if(|v| v.is_none()).is_some() {}
    let new = out.copy(id, &inputs, &[("do_rotary", Attr::Int(0))])?;
    replacements.replace_outputs(node, &new);
    Ok(())
}
