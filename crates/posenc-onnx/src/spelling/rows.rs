//! Rows of tables by other operators, and tables in pieces.

use posenc_ir::{Attr, NodeId, Tensor, ValueId};

use super::draft::Draft;
use super::view::View;

/// `GatherND` of indices of one number each, which picks along the first axis.
pub(super) fn gather_nd(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    if !node.is("GatherND") || node.int("batch_dims").ok()?.unwrap_or(0) != 0 {
        return None;
    }
    let (data, indices) = (node.input(0)?, node.input(1)?);
    let last = view.rank(indices)?.checked_sub(1)?;
    let axis = i64::try_from(last).ok()?;
    let spread = view.made_by(indices, "Unsqueeze");
    let picked = match spread.filter(|n| view.axes(n, last + 1).as_deref() == Some(&[last])) {
        Some(unsqueeze) => unsqueeze.input(0)?,
        None if view.size(indices, last) == Some(1) => {
            let axes = draft.ints(&[axis]);
            draft.op("Squeeze", &[indices, axes], &[])
        }
        None => return None,
    };
    let rows = draft.op("Gather", &[data, picked], &[("axis", Attr::Int(0))]);
    draft.replace(node.output(0)?, rows)
}

/// `GatherND` of indices of one number each into the last axis, of which all others are of batches.
pub(super) fn gather_each(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    if !node.is("GatherND") {
        return None;
    }
    let batches = usize::try_from(node.int("batch_dims").ok()??).ok()?;
    let (data, indices) = (node.input(0)?, node.input(1)?);
    let last = view.rank(indices)?.checked_sub(1)?;
    let whole = view.rank(data)? == batches + 1 && last == batches + 1;
    if batches == 0 || !whole || view.size(indices, last) != Some(1) {
        return None;
    }
    let axes = draft.ints(&[i64::try_from(last).ok()?]);
    let picked = draft.op("Squeeze", &[indices, axes], &[]);
    let axis = Attr::Int(i64::try_from(batches).ok()?);
    let rows = draft.op("GatherElements", &[data, picked], &[("axis", axis)]);
    draft.replace(node.output(0)?, rows)
}

/// The most elements of a table that is put together.
const MOST: usize = 1 << 25;

/// `Concat` of stored constants.
pub(super) fn in_pieces(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let graph = view.graph();
    let node = graph.node(id);
    if !node.is("Concat") || node.inputs().len() < 2 {
        return None;
    }
    let parts: Vec<ValueId> = node.inputs().iter().copied().collect::<Option<_>>()?;
    let parts: Vec<ValueId> = parts.iter().map(|v| view.origin(*v)).collect();
    let first = view.stored(*parts.first()?)?;
    let rank = first.dims.len();
    // Shapes are put together in every graph, and read as they are.
    let axis = view.axis(node, 0, rank).filter(|_| rank >= 2)?;
    let mut dims = first.dims.clone();
    dims[axis] = 0;
    for part in &parts {
        let own = view.stored(*part)?;
        let fits = |a: usize| a == axis || own.dims.get(a) == dims.get(a);
        if own.dtype != first.dtype || own.dims.len() != rank || !(0..rank).all(fits) {
            return None;
        }
        dims[axis] = dims[axis].checked_add(own.dims[axis])?;
    }
    let elements = dims.iter().try_fold(1usize, |n, d| n.checked_mul(*d))?;
    let bits = first.dtype?.bits()?;
    if elements == 0 || elements > MOST || !bits.is_multiple_of(8) {
        return None;
    }
    let tensors: Vec<Tensor> = (parts.iter())
        .map(|v| view.constant(*v))
        .collect::<Option<_>>()?;
    let outer: usize = dims[..axis].iter().product();
    let inner: usize = dims[axis + 1..].iter().product::<usize>() * bits / 8;
    let mut bytes = Vec::with_capacity(elements * bits / 8);
    for row in 0..outer {
        for tensor in &tensors {
            let width = tensor.dims()[axis] * inner;
            bytes.extend(tensor.bytes().get(row * width..(row + 1) * width)?);
        }
    }
    let whole = Tensor::new(first.dtype?, dims, bytes.into())?;
    let whole = draft.emitter().constant("constant", whole);
    draft.replace(node.output(0)?, whole)
}
