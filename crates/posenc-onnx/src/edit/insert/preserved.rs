//! What a graph shows of positions before the old encoding is removed.

use std::collections::VecDeque;

use posenc_ir::{DType, Emitter, Tensor, Use, ValueId};
use rustc_hash::FxHashSet;

use crate::attention::stream::{InsertionPoint, Stream};
use crate::detect::RotaryOperand;
use crate::detect::context::Context;
use crate::detect::finding::Finding;
use crate::detect::rotary::source;
use crate::error::RewriteError;
use crate::graph::dataflow::Class;
use crate::graph::ports::Role;
use crate::plan::swap::SwapPlan;
use posenc_encodings::kind::Stack;

/// Positions and insertion points of the original graph, for the patch that inserts the new
/// encoding.
#[derive(Clone, Debug, Default)]
pub(crate) struct Preserved {
    /// Positions that skip padding, by stack: values that nothing reads yet.
    pub(crate) positions: Vec<(Option<Stack>, ValueId)>,
    /// What the old encoding was added to, by stack.
    places: Vec<(Option<Stack>, InsertionPoint)>,
}

/// The most values to search for positions.
const MAX_VALUES: usize = 256;

/// Preserves positions that skip padding, which only the old encoding may read, and records where
/// the old encoding was added. `None` if the plan inserts nothing.
pub(crate) fn preserve(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    plan: &SwapPlan,
) -> Result<Option<Preserved>, RewriteError> {
    let mut preserved = Preserved::default();
    if plan.groups.is_empty() {
        return Ok(None);
    }
    let findings = context.found.findings.iter();
    let findings: Vec<&Finding> = findings.filter(|f| plan.removes(context, f)).collect();
    preserved.record_places(context, &findings);
    if context.found.ports.first(Role::Positions).is_some() || plan.add_position_ids {
        return Ok(Some(preserved));
    }
    let rotary = context.found.rotary.iter().filter(|r| plan.has(r.site));
    for rotary in rotary {
        let counted = || rotation_positions(context, &rotary.query);
        preserved.add(out, context, rotary.site, counted);
    }
    for finding in findings {
        let counted = || {
            finding
                .entries
                .iter()
                .find_map(|at| entry_positions(context, *at))
        };
        if let Some(site) = finding.sites.first() {
            preserved.add(out, context, *site, counted);
        }
    }
    Ok(Some(preserved))
}

/// A value that counts the tokens that are not padding, and its number at position 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    value: ValueId,
    offset: i64,
}

impl Preserved {
    /// Where the old encoding was added to the stream of a stack, if that value still exists.
    pub(crate) fn place(
        &self,
        context: &Context<'_>,
        stack: Option<Stack>,
    ) -> Option<InsertionPoint> {
        let (_, place) = self.places.iter().find(|p| p.0 == stack)?;
        let graph = context.graph();
        let removed = graph
            .producer(place.value)
            .is_some_and(|p| graph.is_removed(p.0));
        let read = !graph.uses(place.value).is_empty();
        (!removed && read && context.is_content(place.value)).then(|| place.clone())
    }

    fn record_places(&mut self, context: &Context<'_>, findings: &[&Finding]) {
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
                let place = InsertionPoint {
                    value,
                    tokens: addition.tokens,
                    only: None,
                };
                self.places.push((stack, place));
            }
        }
    }

    /// Preserves the positions that `counted` finds for the stack of a site, unless there are some.
    fn add(
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
        let positions = if offset == 0 {
            out.op("Identity", &[value])
        } else {
            let dtype = context.dtype(value);
            let tensor = Tensor::from_f64(dtype, &[], &[offset as f64]);
            let first = out.constant("offset", tensor);
            out.op("Sub", &[value, first])
        };
        self.positions.push((stack, positions));
    }
}

/// The positions of a rotation, if they skip padding.
fn rotation_positions(context: &Context<'_>, half: &RotaryOperand) -> Option<Counted> {
    let value = source::positions(context.model, context.found, half)?;
    counts(context, value).or_else(|| nearest(context, value))
}

/// The positions that lead to a use, if they skip padding.
fn entry_positions(context: &Context<'_>, at: Use) -> Option<Counted> {
    let value = context.graph().node(at.node).input(at.slot())?;
    nearest(context, value)
}

/// The nearest predecessor of a value that counts tokens that are not padding, integers first.
fn nearest(context: &Context<'_>, value: ValueId) -> Option<Counted> {
    let graph = context.graph();
    let mut queue = VecDeque::from([value]);
    let mut seen = FxHashSet::default();
    let mut floats = None;
    while let Some(value) = queue.pop_front() {
        let class = context.found.classes.of_value(value);
        let skips_padding = class.has(Class::PADDING) && !class.has(Class::CONTENT);
        if !skips_padding || seen.len() > MAX_VALUES || !seen.insert(value) {
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

/// Recognizes a value `[batch, token]` that depends on the padding and, without padding, counts the
/// tokens.
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
