//! Numbers in the graph that cut or pick along an axis of another length.

use posenc_ir::{NodeId, Use, ValueId};

use super::counts::may_follow;
use super::rules::is_of_length;
use super::sizes::Wanted;
use super::walk::Walk;
use crate::error::{Refusal, RewriteError};
use crate::graph::extent::Extent;
use crate::graph::lane::wrap;

/// What a convolution does along an axis.
struct KernelSide {
    /// Elements from one place to the next.
    step: i128,
    /// Elements that the kernel reads at a place.
    reach: i128,
    /// Elements that are added before and behind.
    pads: [i128; 2],
}

impl Walk<'_> {
    /// Refuses numbers of a node that are those of the old size.
    pub(super) fn check_numbers(&self, id: NodeId) -> Result<(), RewriteError> {
        let node = self.context.graph().node(id);
        let Some(axes) = node.input(0).and_then(|v| self.axes.get(&v)) else {
            return Ok(());
        };
        match (node.op(), node.domain()) {
            ("Conv" | "ConvInteger", "") => self.check_patches(id, axes, 1)?,
            ("QLinearConv", "") => self.check_patches(id, axes, 3)?,
            _ => {}
        }
        let fixed = |slot: usize| node.input(slot).filter(|v| !self.values.contains_key(v));
        let along = |usual: i64| {
            let axis = node.int("axis").ok().flatten().unwrap_or(usual);
            wrap(axis, axes.len()).map(|axis| &axes[axis])
        };
        let ends = match (node.op(), node.domain()) {
            ("Conv" | "ConvInteger", "") if self.fills_up(id, axes, 1) => true,
            ("QLinearConv", "") if self.fills_up(id, axes, 3) => true,
            ("Slice", "") => {
                self.ends_within(id, axes) && !self.is_rolled(id) && !self.is_from_ends(id, axes)
            }
            ("Gather", "") => {
                let index = fixed(1);
                along(0).is_none_or(|axis| {
                    let is_named = match index {
                        Some(index) => !self.is_beside(axis, index),
                        None => self.is_open() && !self.indices_follow(id, 1, axis),
                    };
                    axis.changes() && is_named
                })
            }
            ("GatherElements" | "GatherND" | "ScatterND" | "ScatterElements", "") => {
                let is_open = self.is_open();
                fixed(1).is_some() || is_open && node.input(1).is_none_or(|v| self.are_numbers(v))
            }
            // The place of a token is counted from the first, however many there are.
            ("ArgMax" | "ArgMin", "") if self.is_open() => false,
            ("Split", "") if self.splits_kinds(id) => false,
            ("Split" | "SplitToSequence" | "ArgMax" | "ArgMin", "") => {
                along(0).is_none_or(Extent::changes)
            }
            ("Resize", "") if self.enlarged.contains(&id) => false,
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
            ("TopK", "") => along(-1).is_none_or(Extent::changes),
            ("NonZero" | "Unique" | "Compress", "") => axes.iter().any(Extent::changes),
            // As much as makes a size a multiple of another.
            ("Pad", "") => self.is_lopsided(id, axes),
            // Nothing that a sum is divided by is left: other numbers are looked at one by one.
            (_, "") => !self.is_open() && self.sums(id, axes),
            _ => false,
        };
        if !ends {
            return Ok(());
        }
        let why = format!(
            "this {} acts along an axis that follows the {}, by numbers that do not follow it",
            node.op(),
            self.wanted.name()
        );
        Err(self.refuse(id, why))
    }

    /// Whether a convolution pads one side of what changes by more than its kernel explains: as much as makes a size a
    /// multiple of another. `weights` is its slot of weights.
    fn fills_up(&self, id: NodeId, axes: &[Extent], weights: usize) -> bool {
        let sides = self.kernel_sides(id, weights);
        let mut sides = axes.iter().skip(2).zip(sides);
        sides.any(|(axis, side)| {
            let [before, behind] = side.pads;
            let is_of_kernel = before.abs_diff(behind) <= 1 && before + behind < side.reach;
            axis.changes() && before != behind && !is_of_kernel
        })
    }

    /// What a convolution does along each axis of a map.
    fn kernel_sides(&self, id: NodeId, weights: usize) -> Vec<KernelSide> {
        let node = self.context.graph().node(id);
        let list = |name: &str| node.ints(name).ok().flatten().unwrap_or_default();
        let [steps, pads, holes] = ["strides", "pads", "dilations"].map(list);
        let kernel = node.input(weights).and_then(|v| self.context.dims(v));
        let kernel = kernel.and_then(|dims| dims.get(2..)).unwrap_or_default();
        // Products of any numbers of a file fit.
        let at = |list: &[i64], i: usize, usual: i64| -> i128 {
            list.get(i).copied().unwrap_or(usual).into()
        };
        let side = |(i, size): (usize, &usize)| KernelSide {
            step: at(steps, i, 1).max(1),
            reach: (*size as i128 - 1) * at(holes, i, 1) + 1,
            pads: [at(pads, i, 0), at(pads, i + kernel.len(), 0)],
        };
        kernel.iter().enumerate().map(side).collect()
    }

    /// Refuses sizes of which a convolution would leave out the last pixels, and did not before; `weights` is
    /// its slot of weights.
    fn check_patches(
        &self,
        id: NodeId,
        axes: &[Extent],
        weights: usize,
    ) -> Result<(), RewriteError> {
        let sides = self.kernel_sides(id, weights);
        for (i, (axis, side)) in axes.iter().skip(2).zip(sides).enumerate() {
            let KernelSide { step, reach, pads } = side;
            let padded = pads[0] + pads[1];
            let left = |length: usize| (length as i128 + padded - reach).rem_euclid(step);
            let length = axis.after() as i128;
            let over = left(axis.after());
            if left(axis.before()) != 0 || over == 0 {
                continue;
            }
            let fitting = [length - over, length - over + step].into_iter();
            let fitting = fitting.filter(|n| *n > 0);
            let would = match self.pixels_of(axis, i).filter(|pixels| *pixels > 1) {
                Some(pixels) => {
                    let all: Vec<String> = fitting.map(|n| (n * pixels).to_string()).collect();
                    let side = if i == 0 { "height" } else { "width" };
                    format!("give an image of {side} {}", all.join(" or "))
                }
                None => {
                    let all: Vec<String> = fitting.map(|n| n.to_string()).collect();
                    format!("{} would be", all.join(" or "))
                }
            };
            let why = format!(
                "an axis of {length} pixels or patches is no whole number of steps of {step}; {would}"
            );
            let place = self.context.graph().place(id);
            return Err(Refusal::invalid(why).at(place).into());
        }
        Ok(())
    }

    /// How many pixels of the old image one of an axis is, the `side` of a map: 0 for rows, 1 for columns.
    fn pixels_of(&self, axis: &Extent, side: usize) -> Option<i128> {
        let Wanted::Image { old, .. } = &self.wanted else {
            return None;
        };
        let (pixels, before) = (*old.get(side)? as i128, axis.before() as i128);
        (before > 0 && pixels % before == 0).then(|| pixels / before)
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

    /// The steps of a `Slice` along so many axes; `None` where they are not known.
    pub(super) fn steps(&self, id: NodeId, count: usize) -> Option<Vec<i64>> {
        match self.context.graph().node(id).input(4) {
            None => Some(vec![1; count]),
            Some(_) => self.list(id, 4),
        }
    }

    /// Whether a `Slice` ends somewhere within what changes.
    fn ends_within(&self, id: NodeId, axes: &[Extent]) -> bool {
        let node = self.context.graph().node(id);
        let list = |slot: usize| self.list(id, slot);
        let is_fixed = |slot: usize| {
            let is_set = self.constants.contains_key(&Use::new(id, slot));
            !is_set
                && node
                    .input(slot)
                    .is_some_and(|v| !self.values.contains_key(&v))
        };
        let (Some(starts), Some(ends)) = (list(1), list(2)) else {
            return true;
        };
        let along = list(3).unwrap_or_else(|| (0..starts.len() as i64).collect());
        let Some(steps) = self.steps(id, starts.len()) else {
            return true;
        };
        (0..starts.len()).any(|i| {
            let Some(at) = along.get(i).and_then(|a| wrap(*a, axes.len())) else {
                return true;
            };
            let axis = &axes[at];
            if !axis.changes() {
                return false;
            }
            if let Some(follows) = self.cuts_kinds(id, at) {
                return !follows;
            }
            let step = steps.get(i).copied().unwrap_or(0);
            let Some(end) = ends.get(i) else { return true };
            let before = unchanged(axis.parts().iter());
            let behind = unchanged(axis.parts().iter().rev());
            let beside = |n: i64| match usize::try_from(n) {
                Ok(n) => n <= before,
                Err(_) => self.is_from_end(n) || n.unsigned_abs() as usize <= behind,
            };
            let is_start = beside(starts[i]) || step > starts[i] && starts[i] >= 0;
            let is_end = beside(*end)
                || usize::try_from(*end)
                    .is_ok_and(|n| n >= axis.before().max(axis.after()) && n > 1 << 30);
            step < 1
                || step > 1 && self.is_open()
                || is_fixed(1) && !is_start
                || is_fixed(2) && !is_end
        })
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
        let Some(steps) = self.steps(id, starts.len()) else {
            return false;
        };
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
                // The first token is that of the class.
                Ok(n) => n < before || n == 0 && self.counts_tokens(),
                Err(_) => self.is_from_end(*n) || n.unsigned_abs() as usize <= behind,
            })
        })
    }

    /// Whether a negative index is counted from the last token, however many there are.
    fn is_from_end(&self, index: i64) -> bool {
        let may_be_all =
            |old| is_of_length(index.unsigned_abs() as f64, old) || may_follow(index as f64, old);
        self.counts_tokens() && !self.wanted.opened().is_some_and(may_be_all)
    }

    /// Whether it is a length that is left open.
    fn is_open(&self) -> bool {
        self.wanted.opened().is_some()
    }

    /// Whether it is a length that changes: what is counted from the last token follows it.
    pub(super) fn counts_tokens(&self) -> bool {
        !matches!(self.wanted, Wanted::Image { .. })
    }
}

/// The length of the parts that stay before the first that changes.
fn unchanged<'a>(parts: impl Iterator<Item = &'a Extent>) -> usize {
    parts
        .take_while(|part| !part.changes())
        .map(Extent::before)
        .sum()
}
