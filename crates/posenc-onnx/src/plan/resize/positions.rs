//! What encodes the positions of a sequence, where the graph has it for one length: positions are counted
//! again, and what is stored for each of them is cut.

use posenc_ir::eval::Value;
use posenc_ir::{Use, ValueId};

use super::elements;
use super::positional::{origins, scored};
use super::rules::Rule;
use super::sizes::Wanted;
use super::walk::Walk;
use crate::graph::extent::Extent;

impl Walk<'_> {
    /// Gives each constant that counts positions, of an encoding or of a mask, or the distances between them,
    /// as many as there are now in place of the `old` ones.
    pub(super) fn start_positions(&mut self, old: usize, length: usize) {
        let graph = self.context.graph();
        let counts = |value: &ValueId| {
            let is_constant = self.context.found.classes.of_value(*value).is_constant();
            let known = self.context.found.trace.get(*value);
            let numbers = elements::read(known).filter(|_| is_constant)?;
            let mut long = (0..numbers.ndim()).filter(|axis| numbers.shape()[*axis] == old);
            let rules = long.find_map(|axis| Rule::along(&numbers, axis));
            rules.filter(|rule| match rule {
                Rule::Line { start, steps } => match steps[..] {
                    [(_, step)] => step == 1 && *start >= 0,
                    [(_, a), (_, b)] => *start == 0 && a.abs() == 1 && a + b == 0,
                    _ => false,
                },
                Rule::Band { .. } => false,
            })
        };
        let mut found: Vec<(ValueId, Rule)> = vec![];
        let masks = scored(self.context, self.context.found.attention.iter());
        for value in self.positional.union(&origins(self.context, masks)) {
            let made = graph
                .producer(*value)
                .filter(|_| graph.stored(*value).is_none());
            // The first of those that repeat it in another shape or type.
            let mut before = made
                .into_iter()
                .flat_map(|(id, _)| graph.node(id).inputs().iter().flatten());
            let is_first = !before.any(|other| counts(other).is_some());
            found.extend(
                counts(value)
                    .filter(|_| is_first)
                    .map(|rule| (*value, rule)),
            );
        }
        found.sort_unstable_by_key(|(value, _)| *value);
        for (value, rule) in found {
            let Some(axes) = self.axes(value) else {
                continue;
            };
            let along = rule.axes();
            let axis = |(at, extent)| match along.contains(&at) {
                true => Extent::One { old, new: length },
                false => extent,
            };
            let axes: Vec<Extent> = axes.into_iter().enumerate().map(axis).collect();
            let dims: Vec<usize> = axes.iter().map(Extent::after).collect();
            let tensor = elements::tensor(self.context.dtype(value), &rule.numbers(&dims));
            self.values.insert(value, Value::from_tensor(&tensor));
            self.axes.insert(value, axes);
            for at in graph.uses(value) {
                self.constants.insert(*at, (value, tensor.clone()));
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
            let dims = self.context.dims(value).unwrap_or_default().to_vec();
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
