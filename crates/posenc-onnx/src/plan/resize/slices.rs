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
            ("Slice", "") => {
                self.ends_within(id, axes) && !self.is_rolled(id) && !self.is_from_ends(id, axes)
            }
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
            // Parts next to each other may be those of a pool that adapts to the size.
            ("AveragePool" | "MaxPool" | "LpPool", "") => {
                let list = |name: &str| node.ints(name).ok().flatten().unwrap_or_default();
                let [kernel, steps] = ["kernel_shape", "strides"].map(list);
                let sides = axes.iter().skip(2).zip(kernel).enumerate();
                sides.into_iter().any(|(i, (axis, n))| {
                    let step = steps.get(i).copied().unwrap_or(1);
                    let is_whole = usize::try_from(*n) == Ok(axis.before());
                    axis.changes() && (is_whole || *n > 1 && *n == step)
                })
            }
            ("ArgMax" | "ArgMin", "") => {
                let axis = node.int("axis").ok().flatten().unwrap_or(0);
                wrap(axis, rank).is_none_or(|axis| axes[axis].changes())
            }
            ("TopK", "") => {
                let axis = node.int("axis").ok().flatten().unwrap_or(-1);
                wrap(axis, rank).is_none_or(|axis| axes[axis].changes())
            }
            ("NonZero" | "Unique" | "Compress", "") => axes.iter().any(Extent::changes),
            // As much as makes a size a multiple of another.
            ("Pad", "") => self.is_lopsided(id, axes),
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

    /// Whether a `Pad` adds to one side of what changes more than to the other.
    fn is_lopsided(&self, id: NodeId, axes: &[Extent]) -> bool {
        let Some(pads) = self.list(id, 1) else {
            return true;
        };
        let along: Vec<usize> = match self.list(id, 3) {
            Some(given) => given.iter().filter_map(|a| wrap(*a, axes.len())).collect(),
            None => (0..axes.len()).collect(),
        };
        let count = pads.len() / 2;
        along.iter().enumerate().any(|(i, axis)| {
            let sides = [pads.get(i), pads.get(i + count)];
            axes[*axis].changes() && sides[0] != sides[1]
        })
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

    /// Whether two `Slice`s of one input are put behind each other in the other order: `torch.roll`, of any
    /// size.
    fn is_rolled(&self, id: NodeId) -> bool {
        self.rolled_axis(id).is_some()
    }

    /// The axis along which an input is rolled by this `Slice` and another one.
    fn rolled_axis(&self, id: NodeId) -> Option<usize> {
        let graph = self.context.graph();
        let cut = |id: NodeId| -> Option<(ValueId, i64, i64, i64)> {
            let node = graph.node(id);
            let one = |slot: usize| match self.list(id, slot)?[..] {
                [n] => Some(n),
                _ => None,
            };
            let is_plain = node.is("Slice") && one(4).is_none_or(|step| step == 1);
            is_plain.then(|| Some((node.input(0)?, one(1)?, one(2)?, one(3)?)))?
        };
        let out = graph.node(id).output(0)?;
        let [at] = graph.uses(out) else { return None };
        let joined = graph.node(at.node);
        if !joined.is("Concat") || joined.inputs().len() != 2 {
            return None;
        }
        let parts = [0, 1].map(|slot| graph.producer(joined.input(slot)?).map(|(id, _)| id));
        let [Some(last), Some(first)] = parts else {
            return None;
        };
        let (from, start, end, axis) = cut(last)?;
        let (same, zero, middle, other) = cut(first)?;
        let rank = self.context.dims(from)?.len();
        let along = wrap(axis, rank)?;
        let is_whole = from == same && end > 1 << 30 && zero == 0 && start == middle;
        let is_along = wrap(other, rank) == Some(along)
            && joined
                .int("axis")
                .ok()
                .flatten()
                .and_then(|a| wrap(a, rank))
                == Some(along);
        (is_whole && is_along && start != 0).then_some(along)
    }

    /// The axes of an input that is rolled and joined again here.
    pub(super) fn rolled(&self, id: NodeId) -> Option<Vec<Extent>> {
        let graph = self.context.graph();
        let (part, _) = graph.producer(graph.node(id).input(0)?)?;
        let along = self.rolled_axis(part)?;
        let axes = self.axes_in(part, 0)?;
        axes[along].changes().then_some(axes)
    }

    /// Whether a `Slice` of numbers that the graph computes of sizes counts from the ends alone, as masks of
    /// shifted windows are made.
    fn is_from_ends(&self, id: NodeId, axes: &[Extent]) -> bool {
        let node = self.context.graph().node(id);
        let is_computed = node.input(0).is_some_and(|v| !self.context.is_content(v));
        let (Some(starts), Some(ends)) = (self.list(id, 1), self.list(id, 2)) else {
            return false;
        };
        let along = self.list(id, 3);
        let along = along.unwrap_or_else(|| (0..starts.len() as i64).collect());
        let steps = self.list(id, 4).unwrap_or_default();
        let from_ends = |i: usize| {
            let axis = along.get(i).and_then(|a| wrap(*a, axes.len()));
            let changes = axis.is_none_or(|axis| axes[axis].changes());
            let end = ends.get(i).copied().unwrap_or(0);
            !changes || starts[i] <= 0 && !(0..=1 << 30).contains(&end)
        };
        is_computed && steps.iter().all(|step| *step == 1) && (0..starts.len()).all(from_ends)
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
