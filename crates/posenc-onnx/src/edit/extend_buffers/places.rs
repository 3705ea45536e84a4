//! Where buffers are stored, and where they are read.

use std::collections::{BTreeMap, BTreeSet};

use posenc_ir::{NodeId, Use, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::detect::Runs;
use crate::detect::context::Context;
use crate::detect::finding::Encoding;
use crate::detect::limits::{Bound, bounds};
use crate::graph::dataflow::Class;
use crate::graph::region::ancestors;
use crate::report::LimitCause;

/// A constant that ends before the wanted length, and goes on by a rule if its numbers do.
#[derive(Default)]
pub(super) struct Buffer {
    /// The longest sequence that it has rows for.
    pub(super) length: usize,
    /// Where it is read.
    pub(super) uses: BTreeSet<Use>,
    /// Whether its last rows are taken where the sequence is shorter.
    pub(super) from_end: bool,
    /// Whether it is a bias of slopes.
    pub(super) is_sloped: bool,
    /// Where the number of its rows is read, from which the length is taken off.
    pub(super) starts: BTreeSet<Use>,
    /// Copies of it, as for each sequence, up to the nodes that pick rows.
    copies: BTreeSet<ValueId>,
    /// These nodes.
    readers: BTreeSet<NodeId>,
}

/// The buffers that are shorter than `wanted`, by the constant, with the branch where each was found first; where
/// nothing is stored, the constant is what is computed of constants.
pub(super) fn buffers<'a>(
    branches: &[Context<'a>],
    wanted: usize,
) -> Vec<(Context<'a>, ValueId, Buffer)> {
    let mut all: BTreeMap<(ValueId, bool, usize), (Context<'a>, Buffer)> = BTreeMap::new();
    for context in branches {
        let bounds = bounds(&Runs::new(context.model, context.found));
        let above = above_slopes(context);
        for bound in bounds.iter().filter(|bound| bound.length < wanted) {
            let cut = context.graph().node(bound.node).output(0);
            let is_sloped =
                bound.cause == LimitCause::Table && cut.is_some_and(|cut| above.contains(&cut));
            let is_buffer = matches!(
                bound.cause,
                LimitCause::CausalBuffer | LimitCause::PositionBuffer | LimitCause::TokenTypeBuffer
            );
            if !is_buffer && !is_sloped {
                continue;
            }
            let Some(Stored {
                constant,
                at,
                copies,
            }) = stored(context, bound)
            else {
                continue;
            };
            let start = match bound.from_end.then(|| start(context, bound)) {
                None | Some(Some(Start::FromEnd)) => None,
                Some(Some(Start::Rows(at))) => Some(at),
                Some(None) => continue,
            };
            let key = (constant, bound.from_end, bound.length);
            let (_, buffer) = all.entry(key).or_insert_with(|| {
                let buffer = Buffer {
                    length: bound.length,
                    from_end: bound.from_end,
                    is_sloped,
                    ..Buffer::default()
                };
                (*context, buffer)
            });
            buffer.uses.insert(at);
            buffer.starts.extend(start);
            buffer.copies.extend(copies);
            buffer.readers.insert(bound.node);
        }
    }
    let mut seen: FxHashMap<Use, usize> = FxHashMap::default();
    for at in all.values().flat_map(|(_, buffer)| &buffer.uses) {
        *seen.entry(*at).or_default() += 1;
    }
    let all = all
        .into_iter()
        .map(|((constant, ..), (context, buffer))| (context, constant, buffer));
    // What is read in two ways cannot get the rows of one.
    let is_one = |buffer: &Buffer| buffer.uses.iter().all(|at| seen[at] == 1);
    all.filter(|(context, _, buffer)| is_one(buffer) && !leaks(context, buffer))
        .collect()
}

/// Whether something else reads a copy of a buffer: it would get the new rows.
fn leaks(context: &Context<'_>, buffer: &Buffer) -> bool {
    let graph = context.graph();
    let is_own = |at: &Use| {
        let makes = graph.node(at.node).output(0);
        buffer.readers.contains(&at.node) || makes.is_some_and(|v| buffer.copies.contains(&v))
    };
    let mut copies = buffer.copies.iter();
    copies.any(|copy| graph.value(*copy).is_output() || !graph.uses(*copy).iter().all(is_own))
}

/// A constant, where it is read, and the copies of it up to a node that picks rows.
struct Stored {
    constant: ValueId,
    at: Use,
    copies: Vec<ValueId>,
}

/// The stored constant behind what a node reads: copies for each sequence may be made of it.
fn stored(context: &Context<'_>, bound: &Bound) -> Option<Stored> {
    let graph = context.graph();
    let (mut value, mut at) = (bound.table, Use::new(bound.node, 0));
    let mut copies = vec![];
    while graph.stored(value).is_none() {
        let Some((id, _)) = graph.producer(value) else {
            break;
        };
        let node = graph.node(id);
        let is_whole = || {
            let whole = node.input(0).and_then(|v| context.dims(v));
            whole.is_some() && whole == context.dims(value)
        };
        let is_copy = match (node.op(), node.domain()) {
            ("Expand" | "Identity", "") => true,
            ("Slice", "") => is_whole(),
            _ => false,
        };
        let Some(before) = node.input(0).filter(|_| is_copy) else {
            break;
        };
        copies.push(value);
        (value, at) = (before, Use::new(id, 0));
    }
    if graph.stored(value).is_some() {
        return Some(Stored {
            constant: value,
            at,
            copies,
        });
    }
    // What is computed is stored instead, unless there is one for each sequence.
    let dims = context.dims(bound.table)?;
    let is_one = dims.iter().filter(|n| **n < bound.length).all(|n| *n == 1);
    is_one.then(|| Stored {
        constant: bound.table,
        at: Use::new(bound.node, 0),
        copies: vec![],
    })
}

/// What biases of slopes are computed from.
fn above_slopes(context: &Context<'_>) -> FxHashSet<ValueId> {
    let findings = context.found.findings.iter();
    let sloped = findings.filter(|finding| match &finding.encoding {
        Encoding::ScoreBias(_, bias) => bias.is_sloped(),
        _ => false,
    });
    let entries = sloped.flat_map(|finding| &finding.entries);
    let graph = context.graph();
    let entering = entries.filter_map(|at| graph.node(at.node).input(at.slot()));
    let above = ancestors(graph, &context.found.classes, entering.collect());
    above.into_iter().collect()
}

/// How a `Slice` of the last rows says where it starts.
enum Start {
    /// The length, counted from the end.
    FromEnd,
    /// A number of rows, read here, less the length, or 0.
    Rows(Use),
}

/// How a `Slice` of the last rows starts; `None` where that is not known, or where the number of rows is
/// read for something else too.
fn start(context: &Context<'_>, bound: &Bound) -> Option<Start> {
    let graph = context.graph();
    let has_length = |value: ValueId| context.found.classes.of_value(value).has(Class::LENGTH);
    let number = |value: ValueId| {
        let is_constant = context.found.classes.of_value(value).is_constant();
        let known = context.found.trace.get(value).scalar_i64();
        known.filter(|_| is_constant)
    };
    // The length with another sign.
    let is_negative = |value: ValueId| {
        let Some((id, _)) = graph.producer(value) else {
            return false;
        };
        let node = graph.node(id);
        let factors = [0, 1].map(|slot| node.input(slot).and_then(number));
        let turned = match node.op() {
            "Neg" => true,
            "Mul" => factors.contains(&Some(-1)),
            _ => false,
        };
        turned && node.domain().is_empty() && has_length(value)
    };
    let of_rows = |id, slot, rows: i64, is_rest: bool| {
        let is_rows = usize::try_from(rows) == Ok(bound.length);
        (is_rows && is_rest).then(|| Start::Rows(Use::new(id, slot)))
    };
    let mut value = graph.node(bound.node).input(1)?;
    loop {
        if is_negative(value) {
            return Some(Start::FromEnd);
        }
        if graph.uses(value).len() > 1 || graph.value(value).is_output() {
            return None;
        }
        let (id, _) = graph.producer(value)?;
        let node = graph.node(id);
        let pair = || Some([node.input(0)?, node.input(1)?]);
        value = match (node.op(), node.domain()) {
            ("Reshape" | "Unsqueeze" | "Squeeze" | "Cast" | "Identity", "") => node.input(0)?,
            ("Max", "") => match pair()? {
                [zero, value] if number(zero) == Some(0) => value,
                [value, zero] if number(zero) == Some(0) => value,
                _ => return None,
            },
            ("Add", "") => {
                let [a, b] = pair()?;
                return match (number(a), number(b)) {
                    (Some(rows), None) => of_rows(id, 0, rows, is_negative(b)),
                    (None, Some(rows)) => of_rows(id, 1, rows, is_negative(a)),
                    _ => None,
                };
            }
            ("Sub", "") => {
                let [rows, length] = pair()?;
                return of_rows(id, 0, number(rows)?, has_length(length));
            }
            _ => return None,
        };
    }
}
