//! The number of tokens before the new ones.

#[cfg(test)]
mod tests;

use posenc_ir::{ScopeId, ValueId};
use rustc_hash::FxHashSet;

use super::axes::{Axes, ValueAxis};
use super::length::Length;
use crate::attention::{Operand, Site};
use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::graph::caches::cut;
use crate::graph::dataflow::Class;
use crate::graph::lane::back;

/// The number of tokens before the new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PastLength {
    /// None.
    Zero,
    /// The number of earlier keys.
    Keys(Length),
}

/// What determines the positions of new tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PastTokens {
    /// The number of tokens before them, which is the same in every sequence.
    Same(PastLength),
    /// The last index of each sequence, whose last tokens are the new ones. Without earlier tokens,
    /// all sequences start at 0 and some end earlier.
    LastIndex(ValueId),
}

/// Why a cache does not determine the number of earlier tokens.
const BUFFER: &str = "its cache may be longer than its content, so the positions of new tokens are \
                      not known; give `add-position-ids`";

/// Why a cache of a window does not either.
const WINDOW: &str = "its cache keeps the last tokens alone, as do those of the other layers, so the positions of \
                      new tokens are not known; give `add-position-ids`";

/// A site that counts the tokens before the new ones for the stack of a site: itself, or where its cache keeps the last
/// tokens alone, one whose cache keeps all.
pub(crate) fn counting<'a>(axes: &Axes<'a>, site: &'a Site) -> &'a Site {
    let context = axes.context;
    let keeps_all = |site: &&Site| {
        let cache = joined(context, site).filter(|_| site.past);
        cache.is_some_and(|at| !is_cut(axes, at))
    };
    let is_near = |other: &&Site| {
        other.place.stack == site.place.stack && other.scope == site.scope && !other.cross
    };
    match joined(context, site) {
        Some(at) if site.past && is_cut(axes, at) => {
            let mut others = context.found.attention.iter().filter(is_near);
            others.find(keeps_all).unwrap_or(site)
        }
        _ => site,
    }
}

/// Whether the earlier keys that are joined here are the last ones alone: of a cache that is kept so for the next step, or
/// of one that is cut before them.
fn is_cut(axes: &Axes<'_>, at: ValueAxis) -> bool {
    let (graph, ports) = (axes.context.graph(), &axes.context.found.ports);
    let origin = axes.origin(at).value;
    if ports.iter().any(|port| port.value == origin) {
        return cut(graph, origin).is_some();
    }
    let before = |value: &ValueId| graph.node(graph.producer(*value)?.0).input(0);
    let is_slice = |value: ValueId| {
        let made = graph.producer(value);
        made.is_some_and(|(id, _)| graph.node(id).is("Slice"))
    };
    std::iter::successors(Some(at.value), before).any(is_slice)
}

/// What determines the number of tokens before the new ones of a site.
///
/// # Errors
/// If earlier keys cannot be located, or are stored in a buffer and no input of the operator contains
/// the end of each sequence.
pub(crate) fn past_tokens(axes: &Axes<'_>, site: &Site) -> Result<PastTokens, RewriteError> {
    let context = axes.context;
    let node = context.graph().node(site.node);
    let given = |slot: usize| node.input(slot).is_some();
    let set = |name: &str| !matches!(node.int(name), Ok(None | Some(0)));
    let refuse = |why: &str| Err(context.refuse(site.node, why));
    let (slot, axis) = match (node.domain(), node.op()) {
        // Keys that an earlier operator wrote into a buffer.
        ("", "Attention") if given(6) && !is_square(context, site) => return refuse(BUFFER),
        _ if !site.past => return Ok(PastTokens::Same(PastLength::Zero)),
        ("com.microsoft", "GroupQueryAttention") => {
            return match node.input(5) {
                Some(last) if context.is_content(last) => refuse(
                    "the lengths of its sequences are an input and not computed from a mask, so \
                     positions cannot be checked; give `add-position-ids`",
                ),
                Some(last) => Ok(PastTokens::LastIndex(last)),
                None => refuse("the input for the lengths of its sequences is missing"),
            };
        }
        ("com.microsoft", "MultiHeadAttention") if given(8) => return refuse(BUFFER),
        ("com.microsoft", "Attention") if given(6) || set("past_present_share_buffer") => {
            return refuse(BUFFER);
        }
        ("com.microsoft", "MultiHeadAttention") => (6, 2),
        ("com.microsoft", "Attention") => (4, 3),
        ("", "Attention") => (4, 2),
        _ => (usize::MAX, 0),
    };
    let cache = match node.input(slot) {
        Some(value) => Some(ValueAxis { value, axis }),
        None => joined(context, site),
    };
    let length = |at: ValueAxis| context.dims(at.value)?.get(at.axis).copied();
    match cache.filter(|at| length(*at) == Some(context.found.lengths.past)) {
        Some(at) if is_cut(axes, at) => refuse(WINDOW),
        Some(at) => Ok(PastTokens::Same(PastLength::Keys(Length::of(axes, at)))),
        None => refuse("cannot locate where earlier keys are joined to the new ones"),
    }
}

/// Whether there are as many keys as queries.
fn is_square(context: &Context<'_>, site: &Site) -> bool {
    let tokens = |o: &Operand| context.dims(o.value)?.get(o.lane.sequence).copied();
    tokens(&site.query) == tokens(&site.key)
}

/// The earlier keys that are joined to the new ones before the product.
fn joined(context: &Context<'_>, site: &Site) -> Option<ValueAxis> {
    let (graph, trace) = (context.graph(), &context.found.trace);
    let classes = &context.found.classes;
    let mut stack = vec![(site.key.value, site.key.lane)];
    let mut seen = FxHashSet::default();
    while let Some((value, lane)) = stack.pop() {
        if !seen.insert(value) {
            continue;
        }
        if !classes.of_value(value).has(Class::FRESH) {
            return Some(ValueAxis {
                value,
                axis: lane.sequence,
            });
        }
        let Some((id, output)) = graph.producer(value) else {
            continue;
        };
        let node = graph.node(id);
        for slot in 0..node.inputs().len() {
            let Some(input) = node.input(slot).filter(|v| context.is_content(*v)) else {
                continue;
            };
            if let Some(lane) = back(graph, trace, id, output, slot, lane) {
                stack.push((input, lane));
            }
        }
    }
    None
}

impl PastLength {
    /// The scope for operators that read it.
    pub(crate) fn scope(self, context: &Context<'_>) -> ScopeId {
        match self {
            Self::Zero => context.graph().main(),
            Self::Keys(length) => length.scope(context),
        }
    }
}
