//! Where a table that gets other rows comes from: what is stored, row by row in its place, and read for
//! nothing else.

use posenc_ir::{Use, ValueId};
use rustc_hash::FxHashSet;

use super::table::ResizedTable;
use super::walk::Walk;
use crate::error::RewriteError;
use crate::graph::extent::Extent;
use crate::graph::operators::{is_copy, is_rearrangement};

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
        let (mut stack, mut read, mut stored, mut is_sum) = (vec![table.value], vec![], 0, false);
        let dims = |value: ValueId| self.context.dims(value).unwrap_or_default();
        let count = |value: ValueId| dims(value).iter().product::<usize>();
        // Numbers for each feature, and no rows.
        let is_small = |value: ValueId| count(value) * self.rows_of(table) <= count(table.value);
        while let Some(value) = stack.pop() {
            if read.contains(&value) {
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
                // Rows and columns are added to each other.
                ("Add" | "Sub" | "Mul" | "Div", "") => {
                    let large = |slot: &usize| node.input(*slot).is_some_and(|v| !is_small(v));
                    let slots: Vec<usize> = (0..2).filter(large).collect();
                    let adds = matches!(node.op(), "Add" | "Sub");
                    if slots.len() > 1 && !adds || slots.is_empty() {
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
        for value in read {
            let other = graph.uses(value).iter().find(|at| !seen.contains(at));
            let reads_shape = |at: &&Use| graph.node(at.node).is("Shape");
            if let Some(at) = other.filter(|at| !reads_shape(at)) {
                let why = format!(
                    "{}, a table of positions, is read here for something else, which would keep the old rows",
                    graph.name(value)
                );
                return Err(self.refuse(at.node, why));
            }
            if graph.value(value).is_output() {
                let why = format!("{}, a table of positions, is an output", graph.name(value));
                return Err(self.refuse(id, why));
            }
        }
        Ok(())
    }

    /// Rows of a table along what changes.
    fn rows_of(&self, table: &ResizedTable) -> usize {
        let changed = table.axes.iter().filter(|axis| axis.changes());
        changed.map(Extent::before).product()
    }
}
