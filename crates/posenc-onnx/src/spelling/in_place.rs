//! Elements that a graph of one length picks or writes where they are, by indices that are stored for each of
//! them.

use ndarray::{ArrayD, Axis, Dimension};
use posenc_ir::{NodeId, ValueId};

use super::draft::Draft;
use super::view::View;

/// `Gather` of stored indices from a tensor whose axes were flattened: what [`of_indices`] makes of it.
pub(super) fn picked(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    if !node.is("Gather") || node.int("axis").ok()?.unwrap_or(0) != 0 {
        return None;
    }
    let (flat, indices) = (node.input(0)?, node.input(1)?);
    let flattened = view
        .made_by(flat, "Flatten")
        .or_else(|| view.made_by(flat, "Reshape"))?;
    let data = flattened.input(0)?;
    let (dims, flat) = (view.sizes(data)?, view.sizes(flat)?);
    let (first, ones) = flat.split_first()?;
    let is_flat =
        dims.len() > 1 && *first == dims.iter().product::<usize>() && ones.iter().all(|n| *n == 1);
    let numbers = view.constants(indices).filter(|_| is_flat)?;
    // The place of an element along each axis.
    let mut places = Vec::with_capacity(numbers.len() * dims.len());
    for number in &numbers {
        let place = usize::try_from(*number).ok().filter(|n| n < first)?;
        let inner = (1..=dims.len()).map(|axis| dims[axis..].iter().product::<usize>());
        places.extend(
            inner
                .zip(&dims)
                .map(|(inner, size)| (place / inner % size) as i64),
        );
    }
    let all = [numbers.shape(), &[dims.len()]].concat();
    let places = ArrayD::from_shape_vec(all, places).ok()?;
    let mut rows = of_indices(view, draft, (data, &dims), &places)?;
    if !ones.is_empty() {
        let axes = numbers.ndim()..numbers.ndim() + ones.len();
        let axes: Vec<i64> = axes.map(|axis| axis as i64).collect();
        let axes = draft.ints(&axes);
        rows = draft.op("Unsqueeze", &[rows, axes], &[]);
    }
    draft.replace(node.output(0)?, rows)
}

/// `GatherND` of stored indices that pick every element of the first axes in its order, as a mask is spread
/// over queries by exporters.
pub(super) fn gathered(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    if !node.is("GatherND") || node.int("batch_dims").ok()?.unwrap_or(0) != 0 {
        return None;
    }
    let (data, indices) = (node.input(0)?, node.input(1)?);
    let numbers = view.constants(indices)?;
    let count = *numbers.shape().last()?;
    let sizes = (0..count).map(|axis| view.size(data, axis));
    let sizes: Vec<usize> = sizes.collect::<Option<_>>()?;
    let rows = of_indices(view, draft, (data, &sizes), &numbers)?;
    draft.replace(node.output(0)?, rows)
}

/// The elements of `data` at places along its first axes, which have these `sizes`, where these are all in their
/// order, and may be repeated along other axes.
fn of_indices(
    view: &View<'_>,
    draft: &mut Draft<'_>,
    (data, sizes): (ValueId, &[usize]),
    numbers: &ArrayD<i64>,
) -> Option<ValueId> {
    let (count, picked) = numbers.shape().split_last()?;
    let (count, rank) = (*count, picked.len());
    let rest = view.rank(data)?.checked_sub(count)?;
    let mut dims = vec![1; rank];
    let (mut dropped, mut next) = (vec![], 0);
    for (part, size) in sizes.iter().copied().enumerate().take(count) {
        let own = numbers.index_axis(Axis(rank), part);
        if size == 1 && own.iter().all(|n| *n == 0) {
            dropped.push(part as i64);
            continue;
        }
        let counts = |axis: &usize| {
            picked[*axis] == size
                && own
                    .indexed_iter()
                    .all(|(at, n)| usize::try_from(*n) == Ok(at[*axis]))
        };
        let axis = (next..rank).find(counts)?;
        dims[axis] = size;
        next = axis + 1;
    }
    let mut rows = data;
    if !dropped.is_empty() {
        let axes = draft.ints(&dropped);
        rows = draft.op("Squeeze", &[rows, axes], &[]);
    }
    let new: Vec<i64> = (0..rank)
        .filter(|axis| dims[*axis] == 1)
        .map(|axis| axis as i64)
        .collect();
    if !new.is_empty() {
        let axes = draft.ints(&new);
        rows = draft.op("Unsqueeze", &[rows, axes], &[]);
    }
    if dims != picked {
        // A dimension of 1 keeps what is there.
        let shape = picked
            .iter()
            .map(|n| *n as i64)
            .chain(std::iter::repeat_n(1, rest));
        let shape = draft.ints(&shape.collect::<Vec<i64>>());
        rows = draft.op("Expand", &[rows, shape], &[]);
    }
    Some(rows)
}

/// `ScatterND` of stored indices that writes every element of a tensor in its place: what is written.
pub(super) fn scattered(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    let adds = node
        .string("reduction")
        .ok()?
        .is_some_and(|how| how != "none");
    if !node.is("ScatterND") || adds {
        return None;
    }
    let (data, indices, updates) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let numbers = view.constants(indices)?;
    let (count, written) = numbers.shape().split_last()?;
    let dims = view.sizes(data)?;
    let is_alike = view.sizes(updates).as_ref() == Some(&dims);
    let is_whole = is_alike && dims.get(..*count) == Some(written);
    let is_in_place = (0..*count).all(|part| {
        let own = numbers.index_axis(Axis(written.len()), part);
        own.indexed_iter()
            .all(|(at, n)| usize::try_from(*n).ok().as_ref() == at.slice().get(part))
    });
    (is_whole && is_in_place).then(|| draft.replace(node.output(0)?, updates))?
}
