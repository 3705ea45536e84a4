//! Numbers in the graph that cut tokens between their kinds: class and register tokens, and the patches of an image. They
//! are counted from the kinds, of which only the patches are others on another grid.

use posenc_ir::{NodeId, Tensor, Use, ValueId};

use super::sizes::Wanted;
use super::walk::Walk;
use crate::error::RewriteError;
use crate::graph::extent::Extent;
use crate::graph::lane::wrap;
use crate::graph::region::{above, shape_only};

/// The slot of the sizes of a `Split`.
const SIZES: usize = 1;

/// The least end that means all elements, however many there are.
const ALL: i64 = 1 << 30;

/// A `Slice` along an axis of several kinds of tokens.
struct Cut {
    /// The axis.
    axis: usize,
    /// Where its numbers are among those of the axes that it cuts.
    place: usize,
    /// Where it starts and ends before, and after the change.
    from_to: [[usize; 2]; 2],
}

impl Walk<'_> {
    /// Sets what cuts tokens between their kinds.
    pub(super) fn set_cuts(&mut self, id: NodeId) -> Result<(), RewriteError> {
        let graph = self.context.graph();
        for cut in self.cuts_of(id) {
            for (slot, to) in [(1, cut.from_to[1][0]), (2, cut.from_to[1][1])] {
                let (Some(value), Some(numbers)) =
                    (graph.node(id).input(slot), self.list(id, slot))
                else {
                    continue;
                };
                let Some(now) = numbers.get(cut.place).copied() else {
                    continue;
                };
                // An end beyond the new tokens means the last of them, and is set all the same.
                let follows = self.counted(id, cut.axis, now) == Some(to);
                let is_computed = self.values.contains_key(&value);
                if follows && (is_computed || now >= ALL || now <= to as i64) {
                    continue;
                }
                let at = Use::new(id, slot);
                let count = self.count(id, cut.axis).filter(|_| now < 0).unwrap_or(0);
                let number = to as i64 - count as i64;
                if !is_computed {
                    self.set_number(at, cut.place, number)?;
                } else if self.counts_rotated(value) {
                    let mut numbers = numbers;
                    numbers[cut.place] = number;
                    let flat: Vec<f64> = numbers.iter().map(|n| *n as f64).collect();
                    let dtype = self.context.dtype(value);
                    let tensor = Tensor::from_f64(dtype, &[flat.len()], &flat);
                    self.constants.insert(at, (value, tensor));
                }
            }
        }
        if graph.node(id).is("Split")
            && let Some((_, sizes)) = self.split_sizes(id)
        {
            for (place, [_, size]) in sizes.into_iter().enumerate() {
                let size = size as i64;
                self.set_number(Use::new(id, SIZES), place, size)?;
            }
        }
        Ok(())
    }

    /// Whether a number counts the rows of what rotates patches, which the graph has for the old ones.
    fn counts_rotated(&self, number: ValueId) -> bool {
        let graph = self.context.graph();
        let counts = |value: &ValueId| {
            let maker = graph.producer(*value).map(|(maker, _)| maker);
            let maker = maker.filter(|maker| shape_only(graph, *maker));
            let read = maker.and_then(|maker| graph.node(maker).input(0));
            read.is_some_and(|read| self.rotating.contains(&read))
        };
        let above = above(graph, vec![number], |value| !self.context.is_content(value));
        above.iter().any(counts)
    }

    /// Whether a `Slice` that cuts an axis between kinds of tokens does so by numbers that follow; `None` for another.
    pub(super) fn cuts_kinds(&self, id: NodeId, axis: usize) -> Option<bool> {
        let now = [self.list(id, 1), self.list(id, 2)];
        let follows = |cut: &Cut| {
            let ends = now.iter().zip(cut.from_to[1]);
            ends.into_iter().all(|(now, to)| {
                let now = now.as_ref().and_then(|list| list.get(cut.place).copied());
                now.and_then(|now| self.counted(id, axis, now)) == Some(to)
            })
        };
        let mut cuts = self.cuts_of(id).into_iter();
        cuts.find(|cut| cut.axis == axis).map(|cut| follows(&cut))
    }

    /// The elements of an axis that a node reads, after the change.
    fn count(&self, id: NodeId, axis: usize) -> Option<usize> {
        Some(self.axes_in(id, 0)?.get(axis)?.after())
    }

    /// The place that a number of a `Slice` means after the change.
    fn counted(&self, id: NodeId, axis: usize, number: i64) -> Option<usize> {
        place_of(number, self.count(id, axis)?)
    }

    /// Whether a `Split` cuts between kinds of tokens, by sizes that follow.
    pub(super) fn splits_kinds(&self, id: NodeId) -> bool {
        let now = self.list(id, SIZES);
        let wanted = self.split_sizes(id);
        wanted.zip(now).is_some_and(|((_, sizes), now)| {
            let sizes = sizes.iter().map(|[_, size]| *size as i64);
            now.into_iter().eq(sizes)
        })
    }

    /// What a `Slice` that cuts an axis between kinds of tokens leaves of it.
    pub(super) fn sliced_part(&self, id: NodeId, axis: usize, extent: &Extent) -> Option<Extent> {
        let cut = self.cuts_of(id).into_iter().find(|cut| cut.axis == axis)?;
        let [from, to] = cut.from_to[0];
        between(extent, from, to)
    }

    /// The axes of a part of what a `Split` cuts between kinds of tokens.
    pub(super) fn split_part(
        &self,
        id: NodeId,
        place: usize,
        first: &[Extent],
    ) -> Option<Vec<Extent>> {
        let (axis, sizes) = self.split_sizes(id)?;
        let from = sizes.iter().take(place).map(|[old, _]| old).sum();
        let mut axes = first.to_vec();
        axes[axis] = between(&first[axis], from, from + sizes.get(place)?[0])?;
        Some(axes)
    }

    /// Where a `Slice` cuts axes between kinds of tokens.
    fn cuts_of(&self, id: NodeId) -> Vec<Cut> {
        let node = self.context.graph().node(id);
        let axes = self.axes_in(id, 0).unwrap_or_default();
        let numbers = |slot: usize| self.old_numbers(node.input(slot)?);
        let (true, Some(starts), Some(ends)) = (node.is("Slice"), numbers(1), numbers(2)) else {
            return vec![];
        };
        let along = self.list(id, 3);
        let along = along.unwrap_or_else(|| (0..starts.len() as i64).collect());
        let steps = self.steps(id, starts.len()).unwrap_or_default();
        let cut = |place: usize| {
            let axis = wrap(*along.get(place)?, axes.len())?;
            let extent = axes.get(axis).filter(|extent| self.has_kinds(extent))?;
            let at = |number: i64| place_of(number, extent.before());
            let before = [at(starts[place])?, at(*ends.get(place)?)?];
            let after = [moved(extent, before[0])?, moved(extent, before[1])?];
            let is_cut = steps.get(place) == Some(&1) && before[0] < before[1];
            is_cut.then_some(Cut {
                axis,
                place,
                from_to: [before, after],
            })
        };
        (0..starts.len()).filter_map(cut).collect()
    }

    /// The sizes of a `Split` between kinds of tokens, before and after the change, and the axis.
    fn split_sizes(&self, id: NodeId) -> Option<(usize, Vec<[usize; 2]>)> {
        let node = self.context.graph().node(id);
        let axes = self.axes_in(id, 0)?;
        let axis = wrap(node.int("axis").ok()?.unwrap_or(0), axes.len())?;
        let extent = axes.get(axis).filter(|extent| self.has_kinds(extent))?;
        let old = self.old_numbers(node.input(SIZES)?)?;
        let (mut sizes, mut from) = (vec![], 0_usize);
        for size in old {
            let size = usize::try_from(size).ok()?;
            let to = from.checked_add(size).filter(|to| *to <= extent.before())?;
            sizes.push([size, moved(extent, to)? - moved(extent, from)?]);
            from = to;
        }
        (from == extent.before()).then_some((axis, sizes))
    }

    /// The numbers of a list before the change.
    fn old_numbers(&self, value: ValueId) -> Option<Vec<i64>> {
        let known = self.context.found.trace.get(value).to_i64()?;
        Some(known.iter().copied().collect())
    }

    /// Whether an axis is of other kinds of tokens than patches too.
    fn has_kinds(&self, extent: &Extent) -> bool {
        let mut parts = extent.parts().iter();
        let is_image = matches!(self.wanted, Wanted::Image { .. });
        is_image && extent.changes() && parts.any(|part| !part.changes())
    }
}

/// The place that a number of a `Slice` means on an axis of so many elements.
fn place_of(number: i64, count: usize) -> Option<usize> {
    match usize::try_from(number) {
        Ok(number) => Some(number.min(count)),
        Err(_) => count.checked_sub(usize::try_from(number.unsigned_abs()).ok()?),
    }
}

/// Where a place between elements of an axis is after the change; `None` within what changes.
fn moved(extent: &Extent, place: usize) -> Option<usize> {
    let (mut old, mut new) = (0, 0);
    for part in extent.parts() {
        let end = old + part.before();
        match part.changes() {
            _ if place == old => return Some(new),
            false if place < end => return Some(new + place - old),
            true if place < end => return None,
            _ => {}
        }
        old = end;
        new += part.after();
    }
    (place == old).then_some(new)
}

/// What lies between two places of an axis; `None` where a place is within what changes.
fn between(extent: &Extent, from: usize, to: usize) -> Option<Extent> {
    let mut start = 0;
    let mut kept = vec![];
    for part in extent.parts() {
        let end = start + part.before();
        let own = to.min(end).saturating_sub(from.max(start));
        match part.changes() {
            _ if own == 0 => {}
            true if own < part.before() => return None,
            true => kept.push(part.clone()),
            false => kept.push(Extent::same(own)),
        }
        start = end;
    }
    Some(Extent::concat(kept.iter()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_from_the_kinds_of_tokens() {
        let grid = Extent::One { old: 16, new: 40 };
        let same = Extent::same;
        let tokens = Extent::concat([same(1), same(2), grid.clone(), same(4)].iter());
        let want = [(0, 0), (1, 1), (2, 2), (3, 3), (19, 43), (21, 45), (23, 47)];
        for (old, new) in want {
            assert_eq!(moved(&tokens, old), Some(new), "{old}");
        }
        for place in [4, 11, 18, 24] {
            assert_eq!(moved(&tokens, place), None, "{place}");
        }
        assert_eq!(between(&tokens, 3, 19), Some(grid.clone()));
        assert_eq!(between(&tokens, 0, 3), Some(same(3)));
        assert_eq!(between(&tokens, 2, 20).map(|part| part.after()), Some(42));
        assert_eq!(between(&tokens, 2, 18), None);
    }
}
