//! Numbers in the graph that cut, pick or sum along an axis of another length.

use posenc_ir::{NodeId, ValueId};

use super::walk::Walk;
use crate::error::{Refusal, RewriteError};
use crate::graph::extent::Extent;
use crate::graph::lane::wrap;

impl Walk<'_> {
    /// Refuses numbers of a node that are those of the old size.
    pub(super) fn check_numbers(&self, id: NodeId) -> Result<(), RewriteError> {
        let node = self.context.graph().node(id);
        let Some(axes) = node.input(0).and_then(|v| self.axes.get(&v)) else {
            return Ok(());
        };
        if node.is("Conv") {
            self.check_patches(id, axes)?;
        }
        let fixed = |slot: usize| node.input(slot).filter(|v| !self.values.contains_key(v));
        let rank = axes.len();
        let ends = match (node.op(), node.domain()) {
            ("Slice", "") => self.ends_within(id, axes),
            ("Gather", "") => {
                let axis = node.int("axis").ok().flatten().unwrap_or(0);
                let axis = wrap(axis, rank).map(|axis| &axes[axis]);
                let index = fixed(1);
                axis.zip(index)
                    .is_some_and(|(axis, index)| axis.changes() && !self.is_beside(axis, index))
            }
            ("GatherElements" | "GatherND" | "ScatterND" | "ScatterElements", "") => {
                fixed(1).is_some()
            }
            ("Split" | "SplitToSequence", "") => {
                let axis = node.int("axis").ok().flatten().unwrap_or(0);
                wrap(axis, rank).is_none_or(|axis| axes[axis].changes())
            }
            ("Resize" | "Upsample", "") => fixed(3).is_some(),
            ("AveragePool" | "MaxPool" | "LpPool", "") => {
                let kernel = node.ints("kernel_shape").ok().flatten().unwrap_or_default();
                let sides = axes.iter().skip(2).zip(kernel);
                sides
                    .into_iter()
                    .any(|(axis, n)| axis.changes() && usize::try_from(*n) == Ok(axis.before()))
            }
            ("ReduceSum" | "ReduceProd" | "ReduceL1" | "ReduceL2", "") => self.sums(id, axes),
            _ => false,
        };
        if !ends {
            return Ok(());
        }
        let why = format!(
            "this {} acts along an axis that follows the {}, by numbers that do not",
            node.op(),
            self.wanted.name()
        );
        Err(self.refuse(id, why))
    }

    /// Refuses sizes of which a convolution would leave out the last pixels, and did not before.
    fn check_patches(&self, id: NodeId, axes: &[Extent]) -> Result<(), RewriteError> {
        let node = self.context.graph().node(id);
        let list = |name: &str| node.ints(name).ok().flatten().unwrap_or_default();
        let [steps, pads, holes] = ["strides", "pads", "dilations"].map(list);
        let kernel = node.input(1).and_then(|v| self.context.dims(v));
        let kernel = kernel.and_then(|dims| dims.get(2..)).unwrap_or_default();
        let count = kernel.len();
        let at = |list: &[i64], i: usize, usual: i64| list.get(i).copied().unwrap_or(usual);
        for (i, (axis, kernel)) in axes.iter().skip(2).zip(kernel).enumerate() {
            let step = at(steps, i, 1).max(1);
            let reach = (*kernel as i64 - 1) * at(holes, i, 1) + 1;
            let padded = at(pads, i, 0) + at(pads, i + count, 0);
            let left = |length: usize| (length as i64 + padded - reach).rem_euclid(step);
            let length = axis.after() as i64;
            let over = left(axis.after());
            if left(axis.before()) != 0 || over == 0 {
                continue;
            }
            let fitting = [length - over, length - over + step].into_iter();
            let fitting: Vec<String> = fitting.filter(|n| *n > 0).map(|n| n.to_string()).collect();
            let why = format!(
                "an axis of {length} pixels or patches is no whole number of steps of {step}; {} would be",
                fitting.join(" or ")
            );
            let place = self.context.graph().place(id);
            return Err(Refusal::invalid(why).at(place).into());
        }
        Ok(())
    }

    /// Whether a `Slice` ends somewhere within what changes.
    fn ends_within(&self, id: NodeId, axes: &[Extent]) -> bool {
        let node = self.context.graph().node(id);
        let list = |slot: usize| self.list(id, slot);
        let is_fixed = |slot: usize| {
            node.input(slot)
                .is_some_and(|v| !self.values.contains_key(&v))
        };
        let (Some(starts), Some(ends)) = (list(1), list(2)) else {
            return true;
        };
        let along = list(3).unwrap_or_else(|| (0..starts.len() as i64).collect());
        let steps = list(4).unwrap_or_else(|| vec![1; starts.len()]);
        (0..starts.len()).any(|i| {
            let axis = along.get(i).and_then(|a| wrap(*a, axes.len()));
            let Some(axis) = axis.map(|a| &axes[a]) else {
                return true;
            };
            if !axis.changes() {
                return false;
            }
            let step = steps.get(i).copied().unwrap_or(0);
            let Some(end) = ends.get(i) else { return true };
            let before = unchanged(axis.parts().iter());
            let behind = unchanged(axis.parts().iter().rev());
            let beside = |n: i64| match usize::try_from(n) {
                Ok(n) => n <= before,
                Err(_) => n.unsigned_abs() as usize <= behind,
            };
            let is_start = beside(starts[i]) || step > starts[i] && starts[i] >= 0;
            let is_end = beside(*end)
                || usize::try_from(*end)
                    .is_ok_and(|n| n >= axis.before().max(axis.after()) && n > 1 << 30);
            step < 1 || is_fixed(1) && !is_start || is_fixed(2) && !is_end
        })
    }

    /// What a `Slice` leaves of an axis, of which it leaves `old` elements; `None` where it cuts off what
    /// changes.
    pub(super) fn cut(
        &self,
        id: NodeId,
        axis: usize,
        extent: &Extent,
        old: usize,
    ) -> Option<Extent> {
        let gone = extent.before().checked_sub(old)?;
        let rank = self.axes_in(id, 0)?.len();
        let list = |slot: usize| self.list(id, slot);
        let starts = list(1).unwrap_or_default();
        let along = list(3).unwrap_or_else(|| (0..starts.len() as i64).collect());
        let place = along.iter().position(|a| wrap(*a, rank) == Some(axis));
        let start = place.and_then(|place| starts.get(place).copied());
        let from_front = start.is_some_and(|start| usize::try_from(start) == Ok(gone));
        let mut parts = extent.parts().to_vec();
        if !from_front {
            parts.reverse();
        }
        let mut left = gone;
        let mut kept = vec![];
        for part in parts {
            let own = left.min(part.before());
            left -= own;
            match part {
                part if own == 0 => kept.push(part),
                part if part.changes() => return None,
                part if part.before() > own => kept.push(Extent::same(part.before() - own)),
                _ => {}
            }
        }
        if !from_front {
            kept.reverse();
        }
        Some(Extent::concat(kept.iter()))
    }

    /// Whether constant indices are all of what stays before or behind what changes.
    fn is_beside(&self, axis: &Extent, index: ValueId) -> bool {
        let index = self.context.found.trace.get(index).to_i64();
        let before = unchanged(axis.parts().iter());
        let behind = unchanged(axis.parts().iter().rev());
        index.is_some_and(|index| {
            index.iter().all(|n| match usize::try_from(*n) {
                Ok(n) => n < before,
                Err(_) => n.unsigned_abs() as usize <= behind,
            })
        })
    }

    /// Whether a sum runs over what changes, and is not what its terms are divided by.
    fn sums(&self, id: NodeId, axes: &[Extent]) -> bool {
        let graph = self.context.graph();
        let node = graph.node(id);
        let given: Option<Vec<i64>> = match node.input(1) {
            Some(_) => self.list(id, 1),
            None => node.ints("axes").ok().flatten().map(<[i64]>::to_vec),
        };
        let along: Vec<usize> = match given {
            Some(given) => given.iter().filter_map(|a| wrap(*a, axes.len())).collect(),
            None => (0..axes.len()).collect(),
        };
        if !along.iter().any(|axis| axes[*axis].changes()) {
            return false;
        }
        let (terms, sum) = (node.input(0), node.output(0));
        let divides = |at: &posenc_ir::Use| {
            let reader = graph.node(at.node);
            reader.is("Div") && at.slot() == 1 && reader.input(0) == terms
        };
        !sum.is_some_and(|sum| graph.uses(sum).iter().all(divides))
    }
}

/// The length of the parts that stay before the first that changes.
fn unchanged<'a>(parts: impl Iterator<Item = &'a Extent>) -> usize {
    parts
        .take_while(|part| !part.changes())
        .map(Extent::before)
        .sum()
}
