//! What a graph for sequences of any length shows: the same attention and encodings; at the old length the
//! numbers that it had, and at shorter ones the sizes that a walk says and the first rows of what was stored.

use ndarray::{ArrayD, Slice};
use posenc_ir::eval::{Budget, Trace};
use posenc_ir::{Dim, Model, ValueId};

use crate::detect::context::Context;
use crate::detect::finding::{Encoding, Finding};
use crate::detect::{Options, detect, run_at};
use crate::error::RewriteError;
use crate::graph::extent::Extent;
use crate::graph::ports::Lengths;
use crate::plan::resize::{OpenLength, Whole};
use crate::prove::invariants::check_same_sites;
use crate::prove::stretched::past_end;

/// Elements that a trial run may have.
const MOST: Budget = Budget { elements: 1 << 24 };

/// Compares the result with the plan.
///
/// # Errors
/// With what differs, and where.
pub(crate) fn check(
    before: &Context<'_>,
    after: &Context<'_>,
    plan: &OpenLength,
    options: &Options,
) -> Result<(), RewriteError> {
    let fixed = fixed(after.model, plan)?;
    let found = detect(&fixed, options);
    let fixed = Context {
        model: &fixed,
        found: &found,
    };
    check_same_sites(&fixed, before.found, "with the sequence axis open")?;
    check_encodings(before, &fixed, |old, new| old == new)?;
    // A few tokens show less of a window than many.
    check_encodings(before, after, |old, new| old.kind() == new.kind())?;
    check_at(before, after, plan, plan.old, &|value| {
        Some(before.dims(value)?.to_vec())
    })?;
    plan.trials.iter().try_for_each(|trial| {
        let length = trial.length().unwrap_or(plan.old);
        check_at(
            before,
            after,
            plan,
            length,
            &|value| match trial.axes.get(&value) {
                Some(axes) => Some(axes.iter().map(Extent::after).collect()),
                None => Some(before.dims(value)?.to_vec()),
            },
        )
    })
}

/// Compares the encodings and the number of sites.
fn check_encodings(
    before: &Context<'_>,
    after: &Context<'_>,
    same: impl Fn(&Encoding, &Encoding) -> bool,
) -> Result<(), RewriteError> {
    let (old, new) = (&before.found.findings, &after.found.findings);
    let differs = |(old, new): &(&Finding, &Finding)| {
        old.sites != new.sites || !same(&old.encoding, &new.encoding)
    };
    let first = old.iter().zip(new).find(differs).map(|(old, _)| old);
    let counts = |context: &Context<'_>| {
        let found = context.found;
        let rotations = [
            found.rotary.len(),
            found.axial.len(),
            found.not_rotary.len(),
        ];
        (rotations, found.findings.len(), found.attention.len())
    };
    if first.is_none() && counts(before) == counts(after) {
        return Ok(());
    }
    let why = "with the sequence axis open, the encoding would no longer be read as before";
    Err(before.refuse_finding(first, why))
}

/// The result for sequences of the old length alone.
fn fixed(next: &Model, plan: &OpenLength) -> Result<Model, RewriteError> {
    let graph = next.graph();
    let mut out = graph.emitter(graph.main(), "posenc");
    for (input, axes) in &plan.inputs {
        let dims = graph.value(*input).shape().unwrap_or_default();
        let axis = |(axis, dim): (usize, &Dim)| match axes.contains(&axis) {
            true => Dim::Known(plan.old),
            false => dim.clone(),
        };
        out.redeclare(*input, dims.iter().enumerate().map(axis).collect())?;
    }
    let patch = out.finish();
    Ok(next.clone().with_patch(patch)?.0)
}

/// Compares a run of so many tokens with the dimensions that every value should have, and with the first rows
/// of what is stored for each token.
fn check_at(
    before: &Context<'_>,
    after: &Context<'_>,
    plan: &OpenLength,
    length: usize,
    dims: &dyn Fn(ValueId) -> Option<Vec<usize>>,
) -> Result<(), RewriteError> {
    let graph = before.graph();
    let at = Lengths {
        sequence: length,
        ..before.found.lengths
    };
    let refuse = |value: ValueId, why: &str| {
        let name = graph.name(value);
        let why = format!("of {length} tokens, {name} {why}");
        match graph.producer(value) {
            Some((id, _)) => before.refuse(id, why),
            None => before.refuse_finding(None, why),
        }
    };
    let Some(run) = run_at(after.model, after.found, at, &MOST) else {
        let why = format!("what the graph computes of {length} tokens is not known");
        return Err(before.refuse_finding(None, why));
    };
    let kept = graph.scope(graph.main()).nodes().iter();
    let kept = kept.filter(|id| !after.graph().is_removed(**id));
    let made = kept.flat_map(|id| graph.node(*id).outputs().iter().flatten());
    for value in made.filter(|value| graph.stored(**value).is_none()) {
        let got = run.get(*value).dims.clone();
        if got != dims(*value) {
            return Err(refuse(
                *value,
                "would get other sizes than those that follow the input",
            ));
        }
        let is_known = before.found.trace.get(*value).data.is_some();
        if length == plan.old && is_known && !same(before, &run, *value) {
            return Err(refuse(*value, "would get other numbers than before"));
        }
    }
    for (at, own) in &plan.constants {
        if !matches!(own.whole, Whole::Rows | Whole::Rule(_)) {
            continue;
        }
        let node = after.graph().node(at.node);
        let new = node
            .input(at.slot())
            .and_then(|value| run.get(value).to_f64());
        let old = before.found.trace.get(own.value).to_f64();
        let fits = old.zip(new).is_some_and(|(old, new)| {
            let is_part = old.ndim() == new.ndim()
                && old.shape().iter().zip(new.shape()).all(|(o, n)| n <= o);
            is_part
                && old.slice_each_axis(|axis| Slice::from(..new.shape()[axis.axis.index()])) == new
        });
        if !fits {
            return Err(refuse(own.value, "would not give its first rows"));
        }
    }
    Ok(())
}

/// Refuses a result that does not take one token, one more than the old length, or the longest sequence.
///
/// # Errors
/// With the value that has no sizes then, or the node that treats a token beyond the old length in another way.
pub(crate) fn check_lengths(
    result: &Context<'_>,
    old: usize,
    longest: usize,
) -> Result<Option<String>, RewriteError> {
    let graph = result.graph();
    let known = &result.found.trace;
    for length in [1, (old + 1).min(longest), longest] {
        let at = Lengths {
            sequence: length,
            ..result.found.lengths
        };
        let run = run_at(result.model, result.found, at, &MOST);
        for id in graph.scope(graph.main()).nodes().iter().copied() {
            let mut made = graph.node(id).outputs().iter().flatten();
            let is_lost = |value: &ValueId| {
                let rank = |trace: &Trace| trace.get(*value).dims.as_ref().map(Vec::len);
                rank(known).is_some() && run.as_ref().and_then(rank) != rank(known)
            };
            if made.any(is_lost) {
                let why = format!("this {} does not take {length} tokens", graph.node(id).op());
                return Err(result.refuse(id, why));
            }
        }
    }
    if longest > old {
        return past_end::check(result, [old, longest], None, &MOST);
    }
    Ok(None)
}

/// Whether the numbers of a value are what they were.
fn same(before: &Context<'_>, run: &Trace, value: ValueId) -> bool {
    let (old, new) = (before.found.trace.get(value), run.get(value));
    let bits = |numbers: Option<ArrayD<f64>>| numbers.map(|numbers| numbers.mapv(f64::to_bits));
    bits(old.to_f64()) == bits(new.to_f64())
        && old.to_i64() == new.to_i64()
        && old.to_bool() == new.to_bool()
}
