//! How many tokens came before the new ones.

use posenc_ir::{ScopeId, ValueId};
use rustc_hash::FxHashSet;

use super::axes::{Axes, Axis};
use super::length::Length;
use crate::attention::Site;
use crate::dataflow::Class;
use crate::lane::back;
use crate::rewrite::RewriteError;
use crate::swap::Ground;

/// The tokens before the new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Past {
    /// None.
    Nothing,
    /// As many as earlier keys.
    Keys(Length),
    /// All that there are, which a value tells, less the new ones.
    Rest(ValueId),
}

/// Where the tokens before those of a site are told.
///
/// # Errors
/// Where earlier keys join at a place that cannot be followed.
pub(super) fn past(axes: &Axes<'_>, site: &Site) -> Result<Past, RewriteError> {
    let ground = axes.ground;
    if !site.past {
        return Ok(Past::Nothing);
    }
    let node = ground.graph().node(site.node);
    let (slot, axis) = match (node.domain(), node.op()) {
        // Its cache may be longer than what it holds.
        ("com.microsoft", "GroupQueryAttention") => {
            return match node.input(6) {
                Some(total) => Ok(Past::Rest(total)),
                None => Err(ground.refuse(site.node, "it does not say how many tokens there are")),
            };
        }
        ("com.microsoft", "MultiHeadAttention") => (6, 2),
        ("com.microsoft", "Attention") => (4, 3),
        ("", "Attention") => (4, 2),
        _ => (usize::MAX, 0),
    };
    let cache = match node.input(slot) {
        Some(value) => Some(Axis { value, axis }),
        None => joined(ground, site),
    };
    let length = |at: Axis| ground.dims(at.value)?.get(at.axis).copied();
    match cache.filter(|at| length(*at) == Some(ground.found.lengths.past)) {
        Some(at) => Ok(Past::Keys(Length::of(axes, at))),
        None => {
            let why = "where earlier keys join the new ones cannot be followed";
            Err(ground.refuse(site.node, why))
        }
    }
}

/// The earlier keys that join the new ones on the way to the product.
fn joined(ground: &Ground<'_>, site: &Site) -> Option<Axis> {
    let (graph, trace) = (ground.graph(), &ground.found.trace);
    let classes = &ground.found.classes;
    let mut stack = vec![(site.key.value, site.key.lane)];
    let mut seen = FxHashSet::default();
    while let Some((value, lane)) = stack.pop() {
        if !seen.insert(value) {
            continue;
        }
        if !classes.of_value(value).has(Class::FRESH) {
            return Some(Axis {
                value,
                axis: lane.sequence,
            });
        }
        let Some((id, output)) = graph.producer(value) else {
            continue;
        };
        let node = graph.node(id);
        for slot in 0..node.inputs().len() {
            let Some(input) = node.input(slot).filter(|v| ground.is_content(*v)) else {
                continue;
            };
            if let Some(lane) = back(graph, trace, id, output, slot, lane) {
                stack.push((input, lane));
            }
        }
    }
    None
}

impl Past {
    /// Where what reads it has to stand.
    pub(super) fn scope(self, ground: &Ground<'_>) -> ScopeId {
        match self {
            Self::Nothing => ground.graph().main(),
            Self::Keys(length) => length.scope(ground),
            Self::Rest(total) => ground.graph().value(total).scope(),
        }
    }
}
