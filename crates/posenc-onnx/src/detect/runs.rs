//! The trial run at other lengths.

use std::collections::BTreeMap;

use posenc_ir::eval::{Budget, Trace, Value, probe, trace};
use posenc_ir::{DType, Model, ValueId};

use super::found::Found;
use crate::graph::dataflow::{Class, is_fed};
use crate::graph::ports::{Lengths, Role};

/// Elements that a value of a trial run may have.
pub(crate) const BUDGET: Budget = Budget { elements: 1 << 22 };

/// New tokens of the longer sequences in which encodings are held to what was read.
pub(super) const LONGER: [usize; 3] = [64, 512, 4096];

/// How far positions are moved, as powers of two: beyond the lengths of common models. Further on, angles in single
/// precision are too inexact to be compared.
pub(super) const FAR: std::ops::RangeInclusive<u32> = 13..=19;

/// The most that rounding may explain where numbers are still compared.
pub(super) const COARSE: f64 = 0.3;

/// How exactly numbers of single precision are computed.
const EXACT: f64 = 1e-6;

/// How exactly numbers of a type are computed, as a share of them.
pub(super) fn rounding(dtype: Option<DType>) -> f64 {
    match dtype {
        Some(DType::F16) => 1e-3,
        Some(DType::BF16) => 8e-3,
        _ => EXACT,
    }
}

/// The most lengths that are run besides that of the trial.
const MOST: usize = 16;

/// The trial run at several lengths, each made on first use.
pub(crate) struct Runs<'a> {
    pub(crate) model: &'a Model,
    pub(crate) found: &'a Found,
    others: BTreeMap<usize, Option<Trace>>,
}

impl<'a> Runs<'a> {
    pub(crate) fn new(model: &'a Model, found: &'a Found) -> Self {
        Self {
            model,
            found,
            others: BTreeMap::new(),
        }
    }

    /// The run with so many new tokens; `None` where the model is of another, fixed length, and
    /// after too many other lengths.
    pub(crate) fn at(&mut self, sequence: usize) -> Option<&Trace> {
        let (model, found) = (self.model, self.found);
        if sequence == found.lengths.sequence {
            return Some(&found.trace);
        }
        if self.others.len() >= MOST && !self.others.contains_key(&sequence) {
            return None;
        }
        let make = || run(model, found, sequence, &BUDGET);
        self.others.entry(sequence).or_insert_with(make).as_ref()
    }

    /// A run that is not kept, within a budget of its own.
    pub(crate) fn once(&self, sequence: usize, budget: &Budget) -> Option<Trace> {
        run(self.model, self.found, sequence, budget)
    }
}

fn run(model: &Model, found: &Found, sequence: usize, budget: &Budget) -> Option<Trace> {
    let wanted = Lengths {
        batch: 1,
        sequence,
        ..found.lengths
    };
    run_at(model, found, wanted, budget)
}

/// The trial run at other lengths; `None` where the model does not run at these.
pub(crate) fn run_at(
    model: &Model,
    found: &Found,
    wanted: Lengths,
    budget: &Budget,
) -> Option<Trace> {
    let lengths = found.ports.fit(wanted);
    if (lengths.sequence, lengths.past) != (wanted.sequence, wanted.past) {
        return None;
    }
    let mut seeds = found.ports.seeds(model.graph(), lengths);
    // A flag of the cache chooses the branch that was read, also where the cache is empty.
    let trial = found.ports.seeds(model.graph(), found.lengths);
    let flags = found.ports.iter().filter(|p| p.role == Role::CacheFlag);
    for flag in flags.map(|port| port.value) {
        seeds.extend(trial.get(&flag).map(|value| (flag, value.clone())));
    }
    let content = |v| found.classes.of_value(v).has(Class::CONTENT);
    let opaque = |v| content(v) && !is_fed(model.graph(), v);
    Some(trace(model, &seeds, &opaque, budget))
}

/// Values that do not depend on content in a sequence of so many new tokens, without the rest of the
/// graph; `None` where that is no longer sequence, and where they cannot be computed.
pub(super) fn longer(
    model: &Model,
    found: &Found,
    values: &[ValueId],
    tokens: usize,
    budget: &Budget,
) -> Option<Vec<Value>> {
    let is_longer = tokens > found.lengths.sequence;
    is_longer.then(|| values_at(model, found, values, tokens, budget))?
}

/// The same in a sequence that may be shorter than that of the trial run.
pub(crate) fn values_at(
    model: &Model,
    found: &Found,
    values: &[ValueId],
    tokens: usize,
    budget: &Budget,
) -> Option<Vec<Value>> {
    let wanted = Lengths {
        sequence: tokens,
        ..found.lengths
    };
    let ports = &found.ports;
    let lengths = ports.fit(wanted);
    if lengths.sequence != tokens {
        return None;
    }
    let mut seeds = ports.seeds(model.graph(), lengths);
    for port in ports.iter().filter(|p| p.role == Role::Tokens) {
        let ids = Value::opaque(port.dtype, ports.dims(port, lengths));
        seeds.insert(port.value, ids);
    }
    probe(model, &found.trace, &seeds, values, budget).ok()
}
