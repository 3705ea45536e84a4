//! Where buffers are stored, and where they are read.

use posenc_ir::{NodeId, Use, ValueId};
use rustc_hash::FxHashSet;

use crate::detect::Runs;
use crate::detect::context::Context;
use crate::detect::finding::Encoding;
use crate::detect::limits::{Bound, bounds};
use crate::graph::dataflow::Class;
use crate::report::LimitCause;

/// A constant that ends before the wanted length, and goes on by a rule if its numbers do.
pub(super) struct Buffer {
    /// The constant; where nothing is stored, what is computed of constants.
    pub(super) constant: ValueId,
    /// The longest sequence that it has rows for.
    pub(super) length: usize,
    /// Where it is read.
    pub(super) uses: Vec<Use>,
    /// Whether its last rows are taken where the sequence is shorter.
    pub(super) from_end: bool,
    /// Whether it is a bias of slopes.
    pub(super) is_sloped: bool,
    /// Where the number of its rows is read, from which the length is taken off.
    pub(super) starts: Vec<Use>,
}

/// The buffers that are shorter than `wanted`.
pub(super) fn buffers(context: &Context<'_>, wanted: usize) -> Vec<Buffer> {
    let bounds = bounds(&Runs::new(context.model, context.found));
    let mut all: Vec<Buffer> = vec![];
    let mut copies: FxHashSet<ValueId> = FxHashSet::default();
    for bound in bounds.iter().filter(|bound| bound.length < wanted) {
        let is_sloped = bound.cause == LimitCause::Table && is_slope(context, bound);
        let is_buffer = matches!(
            bound.cause,
            LimitCause::CausalBuffer | LimitCause::PositionBuffer | LimitCause::TokenTypeBuffer
        );
        let Some((constant, at)) = stored(context, bound, &mut copies) else {
            continue;
        };
        if !is_buffer && !is_sloped {
            continue;
        }
        let starts = match bound.from_end {
            true => rows_before(context, bound).into_iter().collect(),
            false => vec![],
        };
        if bound.from_end && starts.is_empty() {
            continue;
        }
        let known = all.iter_mut().find(|buffer| {
            buffer.constant == constant
                && (buffer.from_end, buffer.length) == (bound.from_end, bound.length)
        });
        match known {
            Some(buffer) => {
                buffer.uses.push(at);
                buffer.starts.extend(starts);
            }
            None => all.push(Buffer {
                constant,
                length: bound.length,
                uses: vec![at],
                from_end: bound.from_end,
                is_sloped,
                starts,
            }),
        }
    }
    for buffer in &mut all {
        for places in [&mut buffer.uses, &mut buffer.starts] {
            places.sort_unstable();
            places.dedup();
        }
    }
    // Other readers of a copy would get the new rows.
    let nodes: FxHashSet<NodeId> = bounds.iter().map(|bound| bound.node).collect();
    let graph = context.graph();
    let is_known = |at: &Use| {
        let makes_copy = graph.node(at.node).output(0);
        nodes.contains(&at.node) || makes_copy.is_some_and(|v| copies.contains(&v))
    };
    let leaks = |value: &ValueId| {
        let uses = graph.uses(*value).iter();
        graph.value(*value).is_output() || !uses.clone().all(is_known)
    };
    let leaking: Vec<ValueId> = copies.iter().copied().filter(leaks).collect();
    all.retain(|buffer| {
        let made = buffer
            .uses
            .iter()
            .filter_map(|at| graph.node(at.node).output(0));
        !made.into_iter().any(|value| leaking.contains(&value))
    });
    all
}

/// The stored constant behind what a node reads, and where it is read: copies for each sequence are made
/// of it. Adds these to `copies`.
fn stored(
    context: &Context<'_>,
    bound: &Bound,
    copies: &mut FxHashSet<ValueId>,
) -> Option<(ValueId, Use)> {
    let graph = context.graph();
    let (mut value, mut at) = (bound.table, Use::new(bound.node, 0));
    let mut between = vec![];
    while graph.stored(value).is_none() {
        let Some((id, _)) = graph.producer(value) else {
            break;
        };
        let node = graph.node(id);
        let is_whole = || {
            let whole = node.input(0).and_then(|v| context.dims(v));
            whole.is_some() && whole == context.dims(value)
        };
        let copies = match (node.op(), node.domain()) {
            ("Expand" | "Identity", "") => true,
            ("Slice", "") => is_whole(),
            _ => false,
        };
        let Some(before) = node.input(0).filter(|_| copies) else {
            break;
        };
        between.push(value);
        (value, at) = (before, Use::new(id, 0));
    }
    if graph.stored(value).is_some() {
        copies.extend(between);
        return Some((value, at));
    }
    // What is computed is stored instead, unless there is one for each sequence.
    let dims = context.dims(bound.table)?;
    let is_one = dims.iter().filter(|n| **n < bound.length).all(|n| *n == 1);
    is_one.then(|| (bound.table, Use::new(bound.node, 0)))
}

/// Whether a constant is cut to a bias of slopes.
fn is_slope(context: &Context<'_>, bound: &Bound) -> bool {
    let graph = context.graph();
    let findings = context.found.findings.iter();
    let is_sloped = |encoding: &Encoding| match encoding {
        Encoding::ScoreBias(_, bias) => bias.is_sloped(),
        _ => false,
    };
    let sloped = findings.filter(|finding| is_sloped(&finding.encoding));
    let entries: FxHashSet<Use> = sloped.flat_map(|f| f.entries.iter().copied()).collect();
    let mut stack: Vec<ValueId> = graph
        .node(bound.node)
        .outputs()
        .iter()
        .flatten()
        .copied()
        .collect();
    let mut seen: FxHashSet<ValueId> = stack.iter().copied().collect();
    while let Some(value) = stack.pop() {
        for at in graph.uses(value) {
            if entries.contains(at) {
                return true;
            }
            let outputs = graph.node(at.node).outputs().iter().flatten();
            for next in outputs.filter(|v| !context.is_content(**v)) {
                if seen.insert(*next) {
                    stack.push(*next);
                }
            }
        }
    }
    false
}

/// Where a `Slice` of the last rows reads how many rows there are: its start is this number less the
/// length, or 0.
fn rows_before(context: &Context<'_>, bound: &Bound) -> Option<Use> {
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
    let mut value = graph.node(bound.node).input(1)?;
    loop {
        // The number is that of this table alone.
        let [_] = graph.uses(value) else { return None };
        let (id, _) = graph.producer(value)?;
        let node = graph.node(id);
        value = match (node.op(), node.domain()) {
            ("Reshape" | "Unsqueeze" | "Squeeze" | "Cast" | "Identity", "") => node.input(0)?,
            ("Max", "") => {
                let [a, b] = [node.input(0)?, node.input(1)?];
                match (number(a), number(b)) {
                    (Some(0), None) => b,
                    (None, Some(0)) => a,
                    _ => return None,
                }
            }
            ("Add", "") => {
                let [a, b] = [node.input(0)?, node.input(1)?];
                let (slot, rows, rest) = match (number(a), number(b)) {
                    (Some(rows), None) => (0, rows, b),
                    (None, Some(rows)) => (1, rows, a),
                    _ => return None,
                };
                let is_rows = usize::try_from(rows) == Ok(bound.length);
                return (is_rows && is_negative(rest)).then(|| Use::new(id, slot));
            }
            ("Sub", "") => {
                let rows = usize::try_from(number(node.input(0)?)?).ok()?;
                let is_rest = rows == bound.length && has_length(node.input(1)?);
                return is_rest.then(|| Use::new(id, 0));
            }
            _ => return None,
        };
    }
}
