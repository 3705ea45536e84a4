//! What a graph tells of positions before anything is taken out of it.

use std::collections::VecDeque;

use posenc_ir::{DType, Emitter, Tensor, Use, ValueId};
use rustc_hash::FxHashSet;

use crate::attention::stream::{Place, Stream};
use crate::detect::Half;
use crate::detect::context::Context;
use crate::detect::finding::Finding;
use crate::detect::rotary::source;
use crate::error::RewriteError;
use crate::graph::dataflow::Class;
use crate::graph::ports::Role;
use crate::plan::swap::SwapPlan;
use posenc_encodings::kind::Stack;

/// Positions and places of the graph as it was, held for the patch to come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    /// Positions that heed padding, by stack: nodes that nothing reads yet.
    pub(crate) positions: Vec<(Option<Stack>, ValueId)>,
    /// What an encoding was added to, by stack.
    places: Vec<(Option<Stack>, Place)>,
}

/// Values to look through for positions.
const MOST: usize = 256;

/// Holds the positions of a graph that heeds padding, where what is taken out is all that reads
/// them, and remembers where an encoding was added.
pub(crate) fn keep(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    asked: &SwapPlan,
) -> Result<Option<Kept>, RewriteError> {
    let mut kept = Kept::default();
    if asked.groups.is_empty() {
        return Ok(None);
    }
    let findings = context.survey.findings.iter();
    let findings: Vec<&Finding> = findings.filter(|f| asked.removes(context, f)).collect();
    kept.remember(context, &findings);
    if context.found.ports.first(Role::Positions).is_some() || asked.add_position_ids {
        return Ok(Some(kept));
    }
    let rotary = context.found.rotary.iter().filter(|r| asked.has(r.site));
    for rotary in rotary {
        let counted = || counted_by(context, &rotary.query);
        kept.hold(out, context, rotary.site, counted);
    }
    for finding in findings {
        let counted = || finding.entries.iter().find_map(|at| counted(context, *at));
        if let Some(site) = finding.sites.first() {
            kept.hold(out, context, *site, counted);
        }
    }
    Ok(Some(kept))
}

/// A value that counts tokens that are not padding, and its number at position 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    value: ValueId,
    offset: i64,
}

impl Kept {
    /// The place where an encoding was added to what a stack reads, where it is still there.
    pub(crate) fn place(&self, context: &Context<'_>, stack: Option<Stack>) -> Option<Place> {
        let (_, place) = self.places.iter().find(|p| p.0 == stack)?;
        let graph = context.graph();
        let gone = graph
            .producer(place.value)
            .is_some_and(|p| graph.is_removed(p.0));
        let read = !graph.uses(place.value).is_empty();
        (!gone && read && context.is_content(place.value)).then(|| place.clone())
    }

    fn remember(&mut self, context: &Context<'_>, findings: &[&Finding]) {
        let absolute = findings.iter().filter(|f| f.encoding.is_absolute());
        let entries: FxHashSet<Use> = absolute.flat_map(|f| f.entries.iter().copied()).collect();
        if entries.is_empty() {
            return;
        }
        let found = context.found;
        let graph = context.graph();
        let stream = Stream::of(graph, &found.classes, &found.trace, &found.attention);
        for addition in stream.additions {
            let own = entries.contains(&addition.entry);
            let (Some(value), Some(site)) = (addition.content, addition.sites.first()) else {
                continue;
            };
            let whole = context.dims(value) == Some(&addition.dims[..]);
            let stack = context.site(*site).place.stack;
            if own && whole && self.places.iter().all(|p| p.0 != stack) {
                let place = Place {
                    value,
                    tokens: addition.tokens,
                    only: None,
                };
                self.places.push((stack, place));
            }
        }
    }

    /// Holds positions for the stack of a site, which are looked for unless some are held.
    fn hold(
        &mut self,
        out: &mut Emitter<'_>,
        context: &Context<'_>,
        site: usize,
        counted: impl FnOnce() -> Option<Counted>,
    ) {
        let stack = context.site(site).place.stack;
        if self.positions.iter().any(|p| p.0 == stack) {
            return;
        }
        let Some(Counted { value, offset }) = counted() else {
            return;
        };
        out.set_scope(context.graph().value(value).scope());
        let held = match offset {
            0 => out.op("Identity", &[value]),
            _ => {
                let dtype = context.dtype(value);
                let tensor = Tensor::from_f64(dtype, &[], &[offset as f64]);
                let first = out.constant("offset", tensor);
                out.op("Sub", &[value, first])
            }
        };
        self.positions.push((stack, held));
    }
}

/// What a rotation turns by, where that heeds padding.
fn counted_by(context: &Context<'_>, half: &Half) -> Option<Counted> {
    let value = source::positions(context.model, context.found, half)?;
    counts(context, value).or_else(|| nearest(context, value))
}

/// What leads to the use of a value that carries positions, where that heeds padding.
fn counted(context: &Context<'_>, at: Use) -> Option<Counted> {
    let value = context.graph().node(at.node).input(at.slot())?;
    nearest(context, value)
}

/// The nearest value before this one that counts tokens that are not padding.
fn nearest(context: &Context<'_>, value: ValueId) -> Option<Counted> {
    let graph = context.graph();
    let mut queue = VecDeque::from([value]);
    let mut seen = FxHashSet::default();
    let mut floats = None;
    while let Some(value) = queue.pop_front() {
        let class = context.found.classes.of_value(value);
        let heeds = class.has(Class::PADDING) && !class.has(Class::CONTENT);
        if !heeds || seen.len() > MOST || !seen.insert(value) {
            continue;
        }
        match counts(context, value) {
            Some(counted) if context.dtype(value).is_int() => return Some(counted),
            counted => floats = floats.or(counted),
        }
        if let Some((id, _)) = graph.producer(value) {
            queue.extend(graph.node(id).inputs().iter().flatten());
        }
    }
    floats
}

/// Whether a value `[sequence, token]` counts up by 1 along the tokens where none is padding, and
/// follows the padding.
fn counts(context: &Context<'_>, value: ValueId) -> Option<Counted> {
    let class = context.found.classes.of_value(value);
    if !class.has(Class::PADDING) || class.has(Class::CONTENT) {
        return None;
    }
    let lengths = context.found.lengths;
    let [_, tokens] = *context.dims(value)? else {
        return None;
    };
    let first = match tokens {
        n if n == lengths.sequence => lengths.past,
        n if n == lengths.sequence + lengths.past => 0,
        _ => return None,
    };
    let dtype = context.dtype(value);
    if dtype == DType::Bool || tokens < 2 {
        return None;
    }
    let data = context.found.trace.get(value).to_f64()?;
    let start = *data.first()?;
    let rises = |row: ndarray::ArrayViewD<'_, f64>| {
        let expected = (0..tokens).map(|p| start + p as f64);
        row.iter().copied().eq(expected)
    };
    let all = data.axis_iter(ndarray::Axis(0)).all(rises);
    let whole = start.fract() == 0.0 && start.abs() < 1e6;
    (all && whole).then(|| Counted {
        value,
        offset: start as i64 - first as i64,
    })
}
