//! How many tokens came before the new ones.

#[cfg(test)]
mod tests;

use posenc_ir::{ScopeId, ValueId};
use rustc_hash::FxHashSet;

use super::axes::{Axes, ValueAxis};
use super::length::Length;
use crate::attention::{Operand, Site};
use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::graph::dataflow::Class;
use crate::graph::lane::back;

/// The tokens before the new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PastLength {
    /// None.
    Zero,
    /// As many as earlier keys.
    Keys(Length),
}

/// What tells where new tokens stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PastTokens {
    /// Those before them, as many in every sequence.
    Same(PastLength),
    /// The last index of each sequence, of which the new tokens are the last; where sequences
    /// begin, all start at 0 and some end earlier.
    LastIndex(ValueId),
}

/// Why a cache does not tell how many tokens came before.
const BUFFER: &str = "its cache may be longer than what it holds, so that where new tokens stand \
                      is not known; give --add-position-ids";

/// Where the tokens before those of a site are told.
///
/// # Errors
/// Where earlier keys join at a place that cannot be followed, or stand in a buffer of which no
/// input of the operator tells where each sequence ends.
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
                    "the lengths of its sequences are fed, and not counted from a mask, so that \
                     positions cannot be checked; give --add-position-ids",
                ),
                Some(last) => Ok(PastTokens::LastIndex(last)),
                None => refuse("it does not say how many tokens there are"),
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
        Some(at) => Ok(PastTokens::Same(PastLength::Keys(Length::of(axes, at)))),
        None => refuse("where earlier keys join the new ones cannot be followed"),
    }
}

/// Whether there are as many keys as queries.
fn is_square(context: &Context<'_>, site: &Site) -> bool {
    let tokens = |o: &Operand| context.dims(o.value)?.get(o.lane.sequence).copied();
    tokens(&site.query) == tokens(&site.key)
}

/// The earlier keys that join the new ones on the way to the product.
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
    /// Where what reads it has to stand.
    pub(crate) fn scope(self, context: &Context<'_>) -> ScopeId {
        match self {
            Self::Zero => context.graph().main(),
            Self::Keys(length) => length.scope(context),
        }
    }
}
