//! Runs of the evaluator that rotations are cut out with.

use std::borrow::Cow;

use posenc_ir::eval::{Budget, Trace, Value, trace};
use posenc_ir::{Model, ValueId};
use rustc_hash::FxHashMap;

use crate::detect::Detection;
use crate::graph::dataflow::Class;
use crate::graph::ports::Lengths;

/// With more elements of content than this, one sequence is run rather than several.
const MANY: usize = 1 << 14;

/// The run whose dimensions the rotations are cut out with.
pub(crate) struct Trial<'a> {
    pub(crate) lengths: Lengths,
    pub(crate) trace: Cow<'a, Trace>,
    pub(crate) seeds: FxHashMap<ValueId, Value>,
}

impl<'a> Trial<'a> {
    /// That of detection; with heads that are many and wide, another one of one sequence.
    pub(crate) fn of(model: &Model, found: &'a Detection) -> Self {
        let halves = found.rotary.iter().flat_map(|r| [&r.query, &r.key]);
        let content = halves.filter_map(|h| found.trace.get(h.region.input).elements());
        let wanted = Lengths {
            batch: 1,
            ..found.lengths
        };
        let single = found.ports.fit(wanted);
        if content.max().is_some_and(|n| n > MANY) && single == wanted {
            let (trace, seeds) = trial_run(model, found, single, &BUDGET);
            return Self {
                lengths: single,
                trace: Cow::Owned(trace),
                seeds,
            };
        }
        Self {
            lengths: found.lengths,
            trace: Cow::Borrowed(&found.trace),
            seeds: found.ports.seeds(model.graph(), found.lengths),
        }
    }
}

/// Elements that a value of a run may have.
pub(crate) const BUDGET: Budget = Budget { elements: 1 << 20 };

/// A run of these lengths, and what entered it.
pub(crate) fn trial_run(
    model: &Model,
    found: &Detection,
    at: Lengths,
    budget: &Budget,
) -> (Trace, FxHashMap<ValueId, Value>) {
    let seeds = found.ports.seeds(model.graph(), at);
    let opaque = |v| found.classes.of_value(v).has(Class::CONTENT);
    let trace = trace(model, &seeds, &opaque, budget);
    (trace, seeds)
}
