//! Where a table that gets other rows comes from: what is stored, row by row in its place, and read for
//! nothing else.

use posenc_ir::{NodeId, Use, ValueId};
use rustc_hash::FxHashSet;

use super::table::ResizedTable;
use super::walk::Walk;
use crate::error::RewriteError;
use crate::graph::extent::Extent;
use crate::graph::operators::{is_copy, is_rearrangement};
use crate::plan::readers;

/// What such a table is called in a refusal.
const TABLE: &str = "the position table";

impl Walk<'_> {
    /// Refuses a table that is computed of other rows, and one that something else reads too: it would keep
    /// the old rows.
    pub(super) fn check_origin(&self, table: &ResizedTable) -> Result<(), RewriteError> {
        let graph = self.context.graph();
        let id = table.entry.node;
        let computed = || {
            let why = "the position table is computed of other numbers, and what becomes of these is not known";
            self.refuse(id, why)
        };
        let mut seen: FxHashSet<Use> = self.entries.keys().copied().collect();
        let (mut met, mut read) = (FxHashSet::default(), vec![]);
        // What is added, which may be a cut of the table.
        let added = graph.node(id).input(table.entry.slot());
        let (mut stored, mut is_sum) = (0, false);
        let mut stack = vec![added.unwrap_or(table.value)];
        let dims = |value: ValueId| self.context.dims(value).unwrap_or_default();
        let count = |value: ValueId| dims(value).iter().product::<usize>();
        let features = features(table);
        // One number, or one for each feature.
        let is_small = |value: ValueId| {
            let mut sizes = dims(value).iter().filter(|n| **n != 1);
            match (sizes.next(), sizes.next()) {
                (None, _) => true,
                (Some(size), None) => features == Some(*size),
                _ => false,
            }
        };
        while let Some(value) = stack.pop() {
            if !met.insert(value) {
                continue;
            }
            read.push(value);
            let maker = graph
                .producer(value)
                .filter(|_| graph.stored(value).is_none());
            let Some((maker, _)) = maker else {
                stored += count(value);
                continue;
            };
            let node = graph.node(maker);
            let slots: Vec<usize> = match (node.op(), node.domain()) {
                ("Slice", "") => vec![0],
                (op, "") if is_copy(op) || is_rearrangement(op) => vec![0],
                ("Concat", "") => (0..node.inputs().len()).collect(),
                ("Gather", "") if self.picks_all(maker) => vec![0],
                // Rows and columns are added to each other.
                ("Add" | "Sub" | "Mul" | "Div", "") => {
                    let large = |slot: &usize| node.input(*slot).is_some_and(|v| !is_small(v));
                    let slots: Vec<usize> = (0..2).filter(large).collect();
                    let is_followed = match node.op() {
                        "Add" | "Sub" => !slots.is_empty(),
                        "Mul" => slots.len() == 1,
                        _ => slots == [0],
                    };
                    if !is_followed {
                        return Err(computed());
                    }
                    is_sum |= slots.len() > 1;
                    slots
                }
                _ => return Err(computed()),
            };
            for slot in slots {
                seen.insert(Use::new(maker, slot));
                stack.extend(node.input(slot));
            }
        }
        // A part of a larger table would be another part of it.
        if !is_sum && stored != count(table.value) {
            return Err(computed());
        }
        let is_entry = |at: &Use| self.entries.contains_key(at);
        for value in read {
            let is_changed = |other| graph.uses(other).iter().any(is_entry);
            let is_known = |at: &Use| seen.contains(at);
            readers::check(self.context, value, TABLE, is_known, is_changed)?;
        }
        Ok(())
    }
}

impl Walk<'_> {
    /// Whether a `Gather` picks every row of a table, one after the other.
    fn picks_all(&self, id: NodeId) -> bool {
        let node = self.context.graph().node(id);
        let rows = node.input(0).and_then(|v| self.context.dims(v));
        let rows = rows.and_then(|dims| dims.first().copied());
        let picked = node.input(1).map(|v| self.context.found.trace.get(v));
        let picked = picked.and_then(posenc_ir::eval::Value::to_i64);
        let is_first = matches!(node.int("axis"), Ok(None | Some(0)));
        rows.zip(picked)
            .is_some_and(|(rows, picked)| is_first && picked.iter().copied().eq(0..rows as i64))
    }
}

/// The features of each row; `None` where there are as many of them as rows.
fn features(table: &ResizedTable) -> Option<usize> {
    let (rows, others): (Vec<_>, Vec<_>) = table.axes.iter().partition(|axis| axis.is_of_grid());
    let features: usize = others.into_iter().map(Extent::before).product();
    let rows = rows.into_iter();
    let is_row = |axis: &Extent| axis.before() == features;
    (!rows.into_iter().any(is_row)).then_some(features)
}
