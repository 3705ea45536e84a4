//! Attention sinks before the scores of the keys, which are put behind them.

use posenc_ir::{Attr, DType, NodeId, ValueId};

use super::draft::Draft;
use super::view::View;
use crate::graph::lane::wrap;

/// The weights of the keys, cut out of a softmax whose first columns are sinks, joined or padded: those
/// of a softmax whose last columns are.
pub(super) fn in_front(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    let out = node.output(0)?;
    let (weights, of_weights) = view.uncast(node.input(0)?);
    let softmax = view.made_by(weights, "Softmax")?;
    let (joined, of_scores) = view.uncast(softmax.input(0)?);
    let (_, join) = view.maker(joined)?;
    if !join.is("Concat") && !join.is("Pad") {
        return None;
    }
    let part = view.part(out)?;
    let rank = view.rank(joined)?;
    let axis = view.axis(softmax, -1, rank)?;
    // A type between two others would round twice.
    let is_direct = changes(view, &of_weights)?.max(changes(view, &of_scores)?) <= 1;
    if part.begin == 0 || part.end.is_some() || part.axis != axis || !is_direct {
        return None;
    }
    let columns = match join.op() {
        "Concat" => behind(view, draft, join.inputs(), (rank, axis), part.begin)
            .filter(|_| view.axis(join, 0, rank) == Some(axis))?,
        _ => padded_behind(view, draft, joined, (rank, axis), part.begin)?,
    };
    let (from, sinks) = (view.dtype(joined)?, i64::try_from(part.begin).ok()?);
    let [of_softmax, to] = [weights, out].map(|value| view.dtype(value));
    let (of_softmax, to) = (of_softmax?, to?);
    let axis = i64::try_from(axis).ok()?;
    let columns = match of_softmax == from {
        true => columns,
        false => draft.emitter().cast(columns, of_softmax),
    };
    let weights = draft.op("Softmax", &[columns], &[("axis", Attr::Int(axis))]);
    let weights = match of_softmax == to {
        true => weights,
        false => draft.emitter().cast(weights, to),
    };
    let [start, end, axis] = [0, -sinks, axis].map(|n| draft.ints(&[n]));
    let of_keys = draft.op("Slice", &[weights, start, end, axis], &[]);
    draft.replace(out, of_keys)
}

/// How often the type changes from one value to the next.
fn changes(view: &View<'_>, values: &[ValueId]) -> Option<usize> {
    let types: Vec<DType> = values
        .iter()
        .map(|value| view.dtype(*value))
        .collect::<Option<_>>()?;
    Some(types.windows(2).filter(|pair| pair[0] != pair[1]).count())
}

/// The last of joined values first, where those before it are `sinks` long together.
fn behind(
    view: &View<'_>,
    draft: &mut Draft<'_>,
    joined: &[Option<ValueId>],
    (rank, axis): (usize, usize),
    sinks: usize,
) -> Option<ValueId> {
    let joined: Vec<ValueId> = joined.iter().copied().collect::<Option<_>>()?;
    let (scores, before) = joined.split_last()?;
    let widths = before.iter().map(|value| view.size(*value, axis));
    let is_whole = widths.sum::<Option<usize>>() == Some(sinks);
    if !is_whole || before.iter().any(|value| view.rank(*value) != Some(rank)) {
        return None;
    }
    let order = [&[*scores], before].concat();
    let attrs = [("axis", Attr::Int(i64::try_from(axis).ok()?))];
    Some(draft.op("Concat", &order, &attrs))
}

/// What is padded by `sinks` before an axis and nothing else, padded behind it.
fn padded_behind(
    view: &View<'_>,
    draft: &mut Draft<'_>,
    padded: ValueId,
    (rank, axis): (usize, usize),
    sinks: usize,
) -> Option<ValueId> {
    let node = view.made_by(padded, "Pad")?;
    let is_constant = node
        .string("mode")
        .ok()?
        .is_none_or(|mode| mode == "constant");
    let named = match node.input(3) {
        Some(axes) => view.ints(axes)?,
        None => (0..i64::try_from(rank).ok()?).collect(),
    };
    let pads = view.ints(node.input(1)?)?;
    let sinks = i64::try_from(sinks).ok()?;
    let want = |at: usize, name: i64| match wrap(name, rank) == Some(axis) && at < named.len() {
        true => sinks,
        false => 0,
    };
    let names = named.iter().chain(&named).enumerate();
    let is_so = pads.len() == 2 * named.len()
        && names
            .zip(&pads)
            .all(|((at, name), pad)| *pad == want(at, *name));
    if !is_constant || !is_so || !pads.contains(&sinks) {
        return None;
    }
    let mut behind = vec![0; 2 * rank];
    behind[rank + axis] = sinks;
    let behind = draft.ints(&behind);
    let mut inputs = vec![node.input(0)?, behind];
    inputs.extend(node.input(2));
    Some(draft.op("Pad", &inputs, &[]))
}
