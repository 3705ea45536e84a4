//! What encodes the positions of a sequence, where the graph has it for one length: positions are counted
//! again, and what is stored for each of them is cut.

use posenc_ir::eval::Value;
use posenc_ir::{Use, ValueId};
use rustc_hash::FxHashMap;

use super::elements;
use super::positional::{origins, positional, scored};
use super::rules::Rule;
use super::sizes::Wanted;
use super::walk::Walk;
use crate::detect::context::Context;
use crate::graph::extent::Extent;

/// The constants that count the `old` positions, of an encoding or of a mask, or the distances between them; of
/// those that repeat one in another shape or type, the first.
pub(super) fn counts(context: &Context<'_>, old: usize) -> Vec<(ValueId, Rule)> {
    let graph = context.graph();
    let masks = scored(context, context.found.attention.iter());
    let mut all = positional(context);
    all.extend(origins(context, masks));
    let count = |value: ValueId| Some((value, count(context, value, old)?));
    let counts: FxHashMap<ValueId, Rule> = all.into_iter().filter_map(count).collect();
    let repeats = |value: &ValueId| {
        let maker = graph
            .producer(*value)
            .filter(|_| graph.stored(*value).is_none());
        let mut before = maker
            .into_iter()
            .flat_map(|(id, _)| graph.node(id).inputs().iter().flatten());
        before.any(|other| counts.contains_key(other))
    };
    let first = counts.iter().filter(|(value, _)| !repeats(value));
    let mut first: Vec<(ValueId, Rule)> =
        first.map(|(value, rule)| (*value, rule.clone())).collect();
    first.sort_unstable_by_key(|(value, _)| *value);
    first
}

/// How a constant counts the `old` positions, or the distances between them.
fn count(context: &Context<'_>, value: ValueId, old: usize) -> Option<Rule> {
    if !context.found.classes.of_value(value).is_constant() {
        return None;
    }
    let dims = context.dims(value).filter(|dims| dims.contains(&old))?;
    let numbers = elements::read(context.found.trace.get(value))?;
    let mut long = (0..dims.len()).filter(|axis| dims[*axis] == old);
    let rule = long.find_map(|axis| Rule::along(&numbers, axis))?;
    let Rule::Line { start, steps } = &rule else {
        return None;
    };
    let counts = match steps[..] {
        [(_, step)] => step == 1 && *start >= 0,
        [(_, a), (_, b)] => *start == 0 && a.abs() == 1 && a + b == 0,
        _ => false,
    };
    counts.then_some(rule)
}

impl Walk<'_> {
    /// Gives constants that count positions as many as there are now.
    pub(super) fn start_counts(&mut self, counts: &[(ValueId, Rule)], length: usize) {
        let graph = self.context.graph();
        for (value, rule) in counts {
            let Some(mut axes) = self.axes(*value) else {
                continue;
            };
            for axis in rule.axes() {
                axes[axis] = Extent::One {
                    old: axes[axis].before(),
                    new: length,
                };
            }
            let dims: Vec<usize> = axes.iter().map(Extent::after).collect();
            let tensor = elements::tensor(self.context.dtype(*value), &rule.numbers(&dims));
            self.values.insert(*value, Value::from_tensor(&tensor));
            self.axes.insert(*value, axes);
            for at in graph.uses(*value) {
                self.constants.insert(*at, (*value, tensor.clone()));
            }
        }
    }

    /// Lets the first rows of every stored table of an encoding be read, as many as there are tokens now; `old`
    /// is how many it has. Rows that are picked by numbers are picked from all.
    pub(super) fn start_tables(&mut self, old: usize, length: usize) {
        let graph = self.context.graph();
        let picks = |at: &Use| graph.node(at.node).op().starts_with("Gather") && at.slot() == 0;
        let is_table = |value: &ValueId| {
            let is_stored = graph.stored(*value).is_some() && self.context.dtype(*value).is_float();
            is_stored && !graph.uses(*value).iter().any(picks) && !self.values.contains_key(value)
        };
        let mut tables: Vec<ValueId> = self.positional.iter().copied().filter(is_table).collect();
        tables.sort_unstable();
        for value in tables {
            let dims = self.context.dims(value).unwrap_or_default();
            let mut rows = (0..dims.len()).filter(|axis| dims[*axis] == old);
            let Some(axis) = rows
                .next()
                .filter(|_| rows.next().is_none() && dims.len() > 1)
            else {
                continue;
            };
            let extent = |(at, n): (usize, &usize)| Extent::One {
                old: *n,
                new: if at == axis { length } else { *n },
            };
            let axes: Vec<Extent> = dims.iter().enumerate().map(extent).collect();
            for at in graph.uses(value) {
                self.cuts.insert(*at, (value, axes.clone()));
            }
            self.start(value, axes);
        }
    }

    /// Lets the first rows of a constant be read here, where these are what encodes so many positions; whether
    /// they are.
    pub(super) fn cut_rows(&mut self, at: Use, axes: &[Extent]) -> bool {
        let Some(value) = self.context.graph().node(at.node).input(at.slot()) else {
            return false;
        };
        let is_shorter = |axis: &Extent| {
            !axis.changes() || matches!(axis, Extent::One { old, new } if new < old)
        };
        let is_own = matches!(self.wanted, Wanted::OpenLength { .. })
            && self.positional.contains(&value)
            && self.context.found.classes.of_value(value).is_constant()
            && !self.values.contains_key(&value);
        if !is_own || !axes.iter().all(is_shorter) {
            return false;
        }
        self.cuts.insert(at, (value, axes.to_vec()));
        self.resized.insert(at, axes.to_vec());
        true
    }
}
