//! Values that are rotated like queries and keys, as in some RoFormer models.

use posenc_ir::NodeId;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::attention::frontier::{Frontier, OperandPath};
use crate::attention::{Operand, Site};
use crate::detect::context::Context;
use crate::detect::rotary::read::{read, rotates_pairs};
use crate::detect::rotary::site::ProbeMode;
use crate::error::RewriteError;
use crate::graph::lane::Lane;
use crate::graph::operators::{is_elementwise, is_layout, is_product};
use crate::graph::product::Letters;
use crate::graph::region::Region;

/// The region that rotates the values of a site, and how it was read if it was; `None` if position
/// does not act on the values.
///
/// # Errors
/// If position acts on them other than by a rotation.
pub(crate) fn rotated_values(
    context: &Context<'_>,
    site: &Site,
) -> Result<Option<(Region, Option<ProbeMode>)>, RewriteError> {
    let (graph, found) = (context.graph(), context.found);
    let Some(operand) = operand(context, site) else {
        return Ok(None);
    };
    let stretch = OperandPath::of(graph, &found.classes, &found.trace, &operand);
    let mut region = match stretch.region(graph, &found.classes, &found.trace) {
        Frontier::Nothing => return Ok(None),
        Frontier::Region(region) => *region,
        Frontier::Scattered(node) => {
            let why = "cannot remove the encoding of the values: position enters at several places";
            return Err(context.refuse(node, why));
        }
    };
    let dims = context.dims(region.output).unwrap_or_default();
    let width = region.output_lane.width(dims).or(site.head_dim);
    let node = region.entries.first().map_or(site.node, |at| at.node);
    let Some(width) = width else {
        return Err(context.refuse(
            node,
            "cannot remove the encoding of the values: the head size is not known",
        ));
    };
    region.gather_features(graph, &found.trace, width);
    let none = FxHashMap::default();
    let head_dim = site.head_dim.unwrap_or(width).max(width);
    match read(context.model, &found.trace, &none, &region, head_dim) {
        Ok(rotation) => Ok(Some((region, Some(rotation.mode)))),
        Err(_) if rotates_pairs(context.model, &found.trace, &region) => Ok(Some((region, None))),
        Err(why) => Err(context.refuse(
            node,
            format!("cannot remove the encoding of the values: {why}"),
        )),
    }
}

/// The values of a site as they are multiplied with its weights; `None` for fused attention.
fn operand(context: &Context<'_>, site: &Site) -> Option<Operand> {
    site.product?;
    let graph = context.graph();
    let mut stack = vec![graph.node(site.node).output(0)?];
    let mut seen = FxHashSet::default();
    while let Some(weights) = stack.pop() {
        if !seen.insert(weights) {
            continue;
        }
        for at in graph.uses(weights) {
            let node = graph.node(at.node);
            if is_product(node) {
                let found = summed_operand(context, at.node, at.slot());
                if found.is_some() {
                    return found;
                }
            } else if node.domain().is_empty()
                && (is_elementwise(node.op()) || is_layout(node.op()))
            {
                stack.extend(node.outputs().iter().flatten());
            }
        }
    }
    None
}

/// The operand that a product multiplies with the weights in `slot`, with its summed axis.
fn summed_operand(context: &Context<'_>, id: NodeId, slot: usize) -> Option<Operand> {
    let graph = context.graph();
    let letters = Letters::of(graph, &context.found.trace, id)?;
    let own = letters.operands.get(slot)?;
    let other = letters.operands.get(1 - slot.min(1))?;
    let value = graph.node(id).input(1 - slot.min(1))?;
    let axis_of = |is: &dyn Fn(&char) -> bool| other.iter().position(is);
    let sequence = axis_of(&|c| own.contains(c) && !letters.result.contains(c))?;
    let feature = axis_of(&|c| !own.contains(c) && letters.result.contains(c))?;
    let lane = Lane {
        feature: Some(feature),
        ..Lane::of_sequence(sequence)
    };
    context.is_content(value).then_some(Operand { value, lane })
}
