//! Where queries and keys are rotated: after their projection and norm, before earlier keys are
//! joined and heads are repeated.

use posenc_ir::{NodeId, Use, ValueId};

use crate::attention::{Operand, Site};
use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::graph::dataflow::Class;
use crate::graph::lane::{Lane, back};
use crate::graph::operators::{is_copy, is_layout};

/// Queries or keys of new tokens, to be rotated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RotationTarget {
    pub(crate) value: ValueId,
    pub(crate) lane: Lane,
    /// The uses by which attention and the updated cache read it.
    pub(crate) uses: Vec<Use>,
    /// Whether it is the updated cache.
    pub(crate) is_output: bool,
}

/// The side of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Query,
    Key,
}

/// A value on the path from the product back to the projection.
struct PathStep {
    value: ValueId,
    lane: Lane,
    /// The use by which the path leads to the product.
    at: Use,
}

/// The most nodes on the path.
const MAX_NODES: usize = 64;

impl RotationTarget {
    /// Chooses the value to rotate on one side of a site. `fits` rates how well the features of a
    /// head can be rotated in a value; `None` means that they cannot.
    ///
    /// # Errors
    /// If there is no such value before earlier keys are joined.
    pub(crate) fn of(
        context: &Context<'_>,
        site: &Site,
        side: Side,
        fits: &dyn Fn(ValueId, &Lane) -> Option<u8>,
    ) -> Result<Self, RewriteError> {
        let (operand, name) = match side {
            Side::Query => (&site.query, "queries"),
            Side::Key => (&site.key, "keys"),
        };
        let Some(at) = entry(context, site, operand, side) else {
            let why = format!("cannot locate its {name} in the product");
            return Err(context.refuse(site.node, why));
        };
        let path = operand_path(context, operand, at, side);
        let joins = side == Side::Key && site.past;
        let fused = context.graph().node(site.node).op() != "Softmax";
        if joins && !path.joined && !(fused && site.product.is_none()) {
            let why = "cannot locate where earlier keys are joined to the new ones";
            return Err(context.refuse(site.node, why));
        }
        // Starts at the projection; a value that is also read elsewhere ends the search.
        let mut best: Option<(u8, &PathStep)> = None;
        for step in path.steps.iter().rev() {
            if let Some(score) = fits(step.value, &step.lane)
                && best.is_none_or(|(highest, _)| score > highest)
            {
                best = Some((score, step));
            }
            if best.is_some() && is_shared(context, step) {
                break;
            }
        }
        let Some((_, step)) = best else {
            let why = format!("cannot locate the features of a head in its {name}");
            return Err(context.refuse(site.node, why));
        };
        let mut uses = vec![step.at];
        let value = context.graph().value(step.value);
        if side == Side::Key {
            let others = context.graph().uses(step.value).iter();
            uses.extend(others.filter(|u| **u != step.at && is_cached(context, **u)));
        }
        Ok(Self {
            value: step.value,
            lane: step.lane,
            uses,
            is_output: side == Side::Key && value.is_output(),
        })
    }
}

/// The use by which an operand enters the product, or the fused operator.
fn entry(context: &Context<'_>, site: &Site, operand: &Operand, side: Side) -> Option<Use> {
    let graph = context.graph();
    let node = match site.product {
        Some(product) => graph.producer(product)?.0,
        None => site.node,
    };
    let inputs = graph.node(node).inputs().iter().enumerate();
    let mut slots = inputs.filter(|(_, v)| **v == Some(operand.value));
    let first = slots.next()?.0;
    // One value may serve as queries and keys.
    let same = site.query.value == site.key.value && side == Side::Key;
    let slot = slots.next().filter(|_| same).map_or(first, |s| s.0);
    Some(Use::new(node, slot))
}

/// The values from the product back to the projection.
struct OperandPath {
    steps: Vec<PathStep>,
    /// Whether earlier keys are joined on the path; only values before that are listed.
    joined: bool,
}

fn operand_path(context: &Context<'_>, operand: &Operand, at: Use, side: Side) -> OperandPath {
    let mut step = PathStep {
        value: operand.value,
        lane: operand.lane,
        at,
    };
    let mut path = OperandPath {
        steps: vec![],
        joined: false,
    };
    for _ in 0..MAX_NODES {
        let next = before(context, &step, side);
        let (value, lane) = (step.value, step.lane);
        path.steps.push(step);
        let Some((id, slot, joins)) = next else {
            break;
        };
        let graph = context.graph();
        let Some((input, (_, output))) = graph.node(id).input(slot).zip(graph.producer(value))
        else {
            break;
        };
        let Some(lane) = back(graph, &context.found.trace, id, output, slot, lane) else {
            break;
        };
        if joins != Join::Nothing {
            path.steps.clear();
            path.joined |= joins == Join::Past;
        }
        step = PathStep {
            value: input,
            lane,
            at: Use::new(id, slot),
        };
    }
    path
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Join {
    Nothing,
    /// Earlier keys are joined.
    Past,
    /// Heads are repeated.
    Heads,
}

/// The node that computes a value and the slot by which the path continues; `None` if the node
/// mixes features of a head.
fn before(context: &Context<'_>, step: &PathStep, side: Side) -> Option<(NodeId, usize, Join)> {
    let graph = context.graph();
    let (id, _) = graph.producer(step.value)?;
    let node = graph.node(id);
    if !node.domain().is_empty() {
        return None;
    }
    let content = |v: ValueId| context.is_content(v);
    match node.op() {
        "Expand" | "Tile" => Some((id, 0, Join::Heads)),
        op if is_layout(op) || is_copy(op) => Some((id, 0, Join::Nothing)),
        // Integers cannot be rotated, so the path continues to floats.
        "QuantizeLinear" if !context.dtype(step.value).is_float() => Some((id, 0, Join::Nothing)),
        "Mul" | "Div" => {
            let mut slots = (0..2).filter(|s| node.input(*s).is_some_and(content));
            let slot = slots.next().filter(|_| slots.next().is_none())?;
            let factor = node.input(1 - slot)?;
            let scales = (slot == 0 || node.is("Mul")) && is_uniform(context, step, factor);
            scales.then_some((id, slot, Join::Nothing))
        }
        "Concat" if side == Side::Key => {
            let rank = context.dims(step.value)?.len();
            let axis = crate::graph::lane::wrap(node.int("axis").ok()??, rank)?;
            let classes = &context.found.classes;
            let fresh = |v: ValueId| classes.of_value(v).has(Class::FRESH);
            let inputs = node.inputs().iter().enumerate();
            let mut new = inputs.filter(|(_, v)| v.is_some_and(fresh));
            let slot = new.next().filter(|_| new.next().is_none())?.0;
            (axis == step.lane.sequence).then_some((id, slot, Join::Past))
        }
        _ => None,
    }
}

/// Whether a factor is the same for all features and tokens.
fn is_uniform(context: &Context<'_>, step: &PathStep, factor: ValueId) -> bool {
    let (Some(dims), Some(all)) = (context.dims(factor), context.dims(step.value)) else {
        return false;
    };
    let along = |axis: usize| {
        let place = (axis + dims.len()).checked_sub(all.len());
        place.and_then(|a| dims.get(a)).copied().unwrap_or(1)
    };
    let one = dims.iter().product::<usize>() == 1;
    let feature = step.lane.feature.is_some_and(|a| along(a) == 1);
    one || feature && along(step.lane.sequence) == 1
}

/// The uses of a value, without those that read only its dimensions.
fn computing(context: &Context<'_>, value: ValueId) -> impl Iterator<Item = Use> {
    let graph = context.graph();
    let uses = graph.uses(value).iter().copied();
    uses.filter(|u| {
        let node = graph.node(u.node);
        !node.is("Shape") && !node.is("Size")
    })
}

/// Whether a value is read outside the path.
fn is_shared(context: &Context<'_>, step: &PathStep) -> bool {
    let mut uses = computing(context, step.value);
    context.graph().value(step.value).is_output() || uses.any(|u| u != step.at)
}

/// Whether a use only returns the value in another layout, as the updated cache.
fn is_cached(context: &Context<'_>, at: Use) -> bool {
    let graph = context.graph();
    let mut at = at;
    for _ in 0..MAX_NODES {
        let node = graph.node(at.node);
        let moves = is_layout(node.op()) || is_copy(node.op());
        let Some(value) = node.output(0).filter(|_| moves && at.slot() == 0) else {
            return false;
        };
        let mut uses = computing(context, value);
        match (uses.next(), uses.next(), graph.value(value).is_output()) {
            (None, None, is_output) => return is_output,
            (Some(one), None, false) => at = one,
            _ => return false,
        }
    }
    false
}
