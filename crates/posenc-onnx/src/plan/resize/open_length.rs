//! Sequences of any length: what the graph has for one length becomes a function of the length, which is
//! told from walks of shorter ones.

use std::collections::{BTreeMap, BTreeSet};

use posenc_encodings::kind::Kind;
use posenc_ir::{Dim, Use, ValueId};

use super::constants::{Following, constants};
use super::length::of_tokens;
use super::positions::counts;
use super::sizes::{Plan, Wanted};
use super::walk::Walk;
use crate::detect::context::Context;
use crate::detect::finding::Finding;
use crate::error::{Refusal, RewriteError};
use crate::graph::extent::Extent;
use crate::graph::ports::{Port, Role};

/// Shorter graphs tell too little.
const SHORTEST: usize = 4;

/// The first opset whose `Range` counts the tokens, and whose `Slice` reads where it ends.
const COUNTS: i64 = 11;

/// The length of sequences, left open.
#[derive(Clone, Debug)]
pub(crate) struct OpenLength {
    /// The inputs that have the length as an axis, with these axes.
    pub(crate) inputs: Vec<(ValueId, Vec<usize>)>,
    /// The length that is written in the graph.
    pub(crate) old: usize,
    /// Constants that follow, by where they are read.
    pub(crate) constants: BTreeMap<Use, Following>,
    /// The axes of every value of which one follows the length.
    pub(crate) axes: BTreeMap<ValueId, Vec<Follows>>,
    /// What becomes of the model at shorter lengths, at which the result is compared with it.
    pub(crate) trials: Vec<Plan>,
}

/// How an axis follows the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follows {
    /// Not at all.
    No,
    /// It is the length.
    Same,
    /// In another way.
    Otherwise,
}

/// Plans a graph for sequences of any length; `None` where no length is written in it.
///
/// # Errors
/// Where a size, or numbers for each token, follow the length in no known way.
pub(crate) fn open_length(context: &Context<'_>) -> Result<Option<OpenLength>, RewriteError> {
    let Some(old) = written_length(context) else {
        return Ok(None);
    };
    let refuse = |why: String| Err(Refusal::unsupported(why).into());
    if context.model.opset() < COUNTS {
        let opset = context.model.opset();
        return refuse(format!(
            "a graph computes what follows the length from opset {COUNTS} on, and the model has opset {opset}; \
             convert it first"
        ));
    }
    if old < SHORTEST {
        return refuse(format!(
            "the graph is for {old} tokens, which are too few to tell what follows their number"
        ));
    }
    let mut findings = context.found.findings.iter();
    let is_unknown = |finding: &&Finding| finding.encoding.kind() == Kind::Unknown;
    if let Some(unknown) = findings.find(is_unknown) {
        let why = "what this encoding is at other lengths than that of the graph is not known";
        return Err(context.refuse_finding(Some(unknown), why));
    }
    // Of several refusals, the first is that of what was read as most would read it.
    let trials = trials(context, old, Start::Stored).or_else(|error| {
        let others = [Start::Counts, Start::Inputs].into_iter();
        let mut others = others.filter_map(|start| trials(context, old, start).ok());
        others.next().ok_or(error)
    })?;
    let seen: Vec<[usize; 2]> = lengths(old).map(|n| [n, n]).collect();
    let axes = axes(&trials, &seen);
    let constants = constants(context, &trials, &seen)?;
    let features = features(context).map(|(port, _)| port.value);
    let inputs = of_tokens(context, [old, old - 1], features)?
        .into_iter()
        .map(|(input, axes)| {
            let changed = (0..axes.len()).filter(|axis| axes[*axis].changes());
            (input, changed.collect())
        });
    Ok(Some(OpenLength {
        inputs: inputs.collect(),
        old,
        constants,
        axes,
        trials,
    }))
}

/// The number of tokens that is written in the graph; `None` where none is, and where tokens of several inputs
/// have lengths of their own.
pub(crate) fn written_length(context: &Context<'_>) -> Option<usize> {
    let ports = &context.found.ports;
    let tokens = || ports.iter().filter(|port| port.role == Role::Tokens);
    match tokens().count() {
        0 => features(context).map(|(_, length)| length),
        _ if tokens().filter(|port| port.dims.len() > 1).count() > 1 => None,
        _ => ports.fixed_sequence(),
    }
}

/// The only input with features for each token, of as many tokens as all queries stand for; `None` where there
/// are ids.
fn features<'a>(context: &Context<'a>) -> Option<(&'a Port, usize)> {
    let ports = || context.found.ports.iter();
    if ports().any(|port| port.role == Role::Tokens) {
        return None;
    }
    let mut contents = ports().filter(|port| port.role == Role::Content);
    let port = contents.next().filter(|_| contents.next().is_none())?;
    let [Dim::Known(_), Dim::Known(length), Dim::Known(_)] = port.dims[..] else {
        return None;
    };
    let sites = context.found.attention.iter();
    let mut queries = sites.map(|site| {
        context
            .dims(site.query.value)?
            .get(site.query.lane.sequence)
    });
    queries
        .all(|tokens| tokens == Some(&length))
        .then_some((port, length))
}

/// The old length, and shorter ones.
fn lengths(old: usize) -> impl Iterator<Item = usize> {
    let all = BTreeSet::from([old - 1, old * 2 / 3, old.div_ceil(2)]);
    std::iter::once(old).chain(all.into_iter().rev().filter(move |n| *n > 1 && *n < old))
}

/// What follows the length from the start, besides the inputs; other constants follow where they meet what
/// does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// Nothing.
    Inputs,
    /// Numbers that count positions.
    Counts,
    /// These, and tables of encodings, as they are stored.
    Stored,
}

/// What becomes of the model at shorter lengths.
fn trials(context: &Context<'_>, old: usize, start: Start) -> Result<Vec<Plan>, RewriteError> {
    let features = features(context).map(|(port, _)| port.value);
    let counts = match start {
        Start::Inputs => vec![],
        Start::Counts | Start::Stored => counts(context, old),
    };
    let trial = |length: usize| {
        let mut walk = Walk::new(context, Wanted::OpenLength { old, length });
        for (input, axes) in of_tokens(context, [old, length], features)? {
            walk.start(input, axes);
        }
        walk.start_counts(&counts, length);
        if start == Start::Stored {
            walk.start_tables(old, length);
        }
        walk.run()?;
        walk.check_windows()?;
        walk.check_counts()?;
        walk.check_leftovers(old)?;
        Ok(walk.plan(vec![]))
    };
    lengths(old).skip(1).map(trial).collect()
}

/// How the axes of values follow the length, which is `seen[0]` and that of each plan.
fn axes(plans: &[Plan], seen: &[[usize; 2]]) -> BTreeMap<ValueId, Vec<Follows>> {
    let mut found: BTreeMap<ValueId, Vec<Follows>> = BTreeMap::new();
    for (plan, [length, _]) in plans.iter().zip(&seen[1..]) {
        for (value, axes) in &plan.axes {
            let own = found
                .entry(*value)
                .or_insert_with(|| vec![Follows::No; axes.len()]);
            for (own, axis) in own.iter_mut().zip(axes) {
                let now = match axis {
                    axis if !axis.changes() => Follows::No,
                    Extent::One { old, new } if (*old, *new) == (seen[0][0], *length) => {
                        Follows::Same
                    }
                    _ => Follows::Otherwise,
                };
                *own = match (*own, now) {
                    (Follows::No, now) => now,
                    (own, Follows::No) => own,
                    (own, now) if own == now => own,
                    _ => Follows::Otherwise,
                };
            }
        }
    }
    found
}

impl OpenLength {
    /// The declared dimensions of a value afterwards, where the length has this `symbol`; `None` where they stay.
    pub(crate) fn declared(
        &self,
        value: ValueId,
        declared: &[Dim],
        symbol: &Dim,
    ) -> Option<Vec<Dim>> {
        let axes = self.axes.get(&value)?;
        let pairs = declared.iter().zip(axes);
        let dims: Vec<Dim> = pairs
            .map(|(dim, follows)| match (dim, follows) {
                (Dim::Known(_), Follows::Same) => symbol.clone(),
                (Dim::Known(_), Follows::Otherwise) => Dim::Unknown,
                (other, _) => other.clone(),
            })
            .collect();
        (dims != declared).then_some(dims)
    }
}
