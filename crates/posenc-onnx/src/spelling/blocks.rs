//! Blocks that are written into a tensor in place.

use ndarray::{ArrayViewD, Dimension};
use posenc_ir::{Attr, NodeId, ValueId};

use super::draft::Draft;
use super::view::View;
use crate::graph::sizes::is_of_sizes;

/// The most blocks that are put side by side; a step that an exporter unrolled has more.
const MOST: usize = 16;

/// The end of an axis, whatever its length.
const END: usize = usize::MAX / 2;

/// `ScatterND` of blocks that are all of a tensor but for a fixed part of one axis: a `Concat` of what
/// is written and of what stays.
pub(super) fn written(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    let out = node.output(0).filter(|_| node.is("ScatterND"))?;
    let (first, mut base) = Block::of(view, out)?;
    let mut blocks = vec![first];
    while let Some((before, under)) = Block::of(view, turned_back(view, base)) {
        if before.axis != first.axis || blocks.iter().any(|block| block.meets(&before)) {
            break;
        }
        if blocks.len() == MOST {
            return None;
        }
        blocks.push(before);
        base = under;
    }
    blocks.sort_by_key(|block| block.begin);
    let axis = i64::try_from(first.axis).ok()?;
    let whole = view.size(base, first.axis)?;
    let mut parts = vec![];
    let mut at = 0;
    for block in &blocks {
        if at < block.begin {
            parts.push(kept(draft, base, axis, [at, block.begin])?);
        }
        parts.push(block.updates);
        at = block.begin + block.width;
    }
    // All that follows, also where a change of sizes makes that longer.
    if at < whole {
        parts.push(kept(draft, base, axis, [at, END])?);
    }
    let joined = draft.op("Concat", &parts, &[("axis", Attr::Int(axis))]);
    draft.replace(out, joined)
}

/// A value without transposes that undo each other.
fn turned_back(view: &View<'_>, mut value: ValueId) -> ValueId {
    let turned = |value: ValueId| {
        let node = view.made_by(value, "Transpose")?;
        Some((node.input(0)?, view.order(node)?))
    };
    while let Some((middle, second)) = turned(value)
        && let Some((before, first)) = turned(middle)
        && second
            .iter()
            .map(|axis| first.get(*axis).copied())
            .eq((0..first.len()).map(Some))
    {
        value = before;
    }
    value
}

/// What stays of `base` from the first index to the second.
fn kept(
    draft: &mut Draft<'_>,
    base: ValueId,
    axis: i64,
    [from, to]: [usize; 2],
) -> Option<ValueId> {
    let [from, to] = [from, to].map(i64::try_from);
    let [from, to, axis] = [from.ok()?, to.ok()?, axis].map(|n| draft.ints(&[n]));
    Some(draft.op("Slice", &[base, from, to, axis], &[]))
}

/// A block of a tensor that is all of it but for one axis.
#[derive(Clone, Copy)]
struct Block {
    updates: ValueId,
    axis: usize,
    begin: usize,
    width: usize,
}

impl Block {
    /// The block that is written last into a value, and the value before.
    fn of(view: &View<'_>, value: ValueId) -> Option<(Self, ValueId)> {
        let (_, node) = view.maker(value)?;
        let adds = node
            .string("reduction")
            .ok()?
            .is_some_and(|how| how != "none");
        let is_plain = node.is("ScatterND") && !adds;
        let [Some(data), Some(indices), Some(updates)] = *node.inputs() else {
            return None;
        };
        if !is_plain || !is_of_sizes(view.graph(), indices) {
            return None;
        }
        let rank = view.rank(data)?;
        let written = [data, updates];
        let is_whole = |axis: &usize| {
            let whole = view.same_of_numbers(indices, &written, |indices, dims| {
                Some(span(indices, dims, *axis)? == (0, dims[0][*axis]))
            });
            whole == Some(true)
        };
        let mut parts = (0..rank).filter(|axis| !is_whole(axis));
        let (axis, None) = (parts.next()?, parts.next()) else {
            return None;
        };
        let (begin, width) =
            view.same_of_numbers(indices, &written, |indices, dims| span(indices, dims, axis))?;
        // Of the longest sequences, sizes are known alone.
        let sizes = view.all(&[indices, data], |dims| {
            let named = dims[0].split_last().map_or(&[][..], |(_, grid)| grid);
            let mut pairs = named.iter().zip(dims[1]).enumerate();
            pairs.all(|(at, (grid, size))| *grid == if at == axis { width } else { *size })
        });
        let block = Self {
            updates,
            axis,
            begin,
            width,
        };
        sizes.then_some((block, data))
    }

    fn meets(&self, other: &Self) -> bool {
        self.begin < other.begin + other.width && other.begin < self.begin + self.width
    }
}

/// The first index and the width of the part of an axis that indices count, one after the other and each
/// with all others; `dims` are of the tensor and of what is written.
fn span(indices: &ArrayViewD<'_, i64>, dims: &[&[usize]], axis: usize) -> Option<(usize, usize)> {
    let [data, updates] = *dims else { return None };
    let (last, grid) = indices.shape().split_last()?;
    let named = *last;
    let is_block = grid.len() == named && named <= data.len() && updates.len() == data.len();
    if !is_block || updates[..named] != *grid || updates[named..] != data[named..] {
        return None;
    }
    let size = data[axis];
    if axis >= named {
        return Some((0, size));
    }
    let begin = usize::try_from(*indices.iter().nth(axis)?).ok()?;
    let counts = indices.indexed_iter().all(|(at, index)| {
        let at = at.slice();
        let (Some(number), Some(place)) = (at.last(), at.get(axis)) else {
            return false;
        };
        *number != axis || usize::try_from(*index) == Ok(begin + place)
    });
    let width = grid[axis];
    (counts && begin.checked_add(width)? <= size).then_some((begin, width))
}
