//! Indices that the graph computes along an axis that follows the length.

use posenc_ir::{NodeId, ValueId};

use super::walk::Walk;
use crate::graph::dataflow::Class;
use crate::graph::extent::Extent;

impl Walk<'_> {
    /// Whether every computed index along an axis is of the first token, or counted from the last, or depends on
    /// what is fed; `slot` is where the indices are read.
    pub(super) fn indices_follow(&self, id: NodeId, slot: usize, axis: &Extent) -> bool {
        let Some(indices) = self.context.graph().node(id).input(slot) else {
            return false;
        };
        if !self.are_numbers(indices) {
            return true;
        }
        let numbers = self.context.found.trace.get(indices).to_i64();
        let (Some(before), Some(after)) = (numbers, self.list(id, slot)) else {
            return false;
        };
        // Tokens of several sequences behind each other are counted in each.
        let Some([old, new]) = innermost(axis) else {
            return false;
        };
        let mut pairs = before.iter().zip(&after);
        pairs.all(|(before, after)| {
            let (before, after) = (before.rem_euclid(old), after.rem_euclid(new));
            before == 0 && after == 0 || old - before == new - after
        })
    }

    /// Whether indices are as many for each length, and do not depend on ids or masks.
    pub(super) fn are_numbers(&self, indices: ValueId) -> bool {
        let class = self.context.found.classes.of_value(indices);
        let is_fed = class.has(Class::CONTENT) || class.has(Class::PADDING);
        !is_fed && !self.axes.contains_key(&indices)
    }
}

/// The length of the innermost of axes that were flattened, before and after, where no other follows.
fn innermost(axis: &Extent) -> Option<[i64; 2]> {
    let [one] = axis.parts() else { return None };
    let (last, others) = one.factors().split_last()?;
    let is_last = !others.iter().any(Extent::changes) && matches!(last, Extent::One { .. });
    let length = |length: usize| i64::try_from(length).ok().filter(|n| *n > 0);
    Some([length(last.before())?, length(last.after())?]).filter(|_| is_last)
}
