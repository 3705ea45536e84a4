//! A softmax in parts, over rows, or of transposed scores.

use posenc_ir::{Attr, DType, NodeId, ValueId};

use super::draft::Draft;
use super::view::View;

/// `Exp(LogSoftmax(x))`, and `Exp(x − ReduceLogSumExp(x))` with the logarithm in one operator or two.
pub(super) fn of_logarithms(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    if !node.is("Exp") {
        return None;
    }
    let given = node.input(0)?;
    let (_, before) = view.maker(given)?;
    let (scores, axis) = match before.op() {
        "LogSoftmax" => {
            let scores = before.input(0)?;
            (scores, view.axis(before, -1, view.rank(scores)?)?)
        }
        "Sub" => {
            let scores = before.input(0)?;
            (scores, logarithm(view, before.input(1)?, scores)?)
        }
        _ => return None,
    };
    replace(draft, node.output(0)?, scores, axis)
}

/// The axis over which a value is the logarithm of the sum of the exponentials of `scores`.
fn logarithm(view: &View<'_>, value: ValueId, scores: ValueId) -> Option<usize> {
    let (_, node) = view.maker(value)?;
    let of = |v: Option<ValueId>| v.is_some_and(|v| view.same(v, scores));
    match node.op() {
        "ReduceLogSumExp" if of(node.input(0)) => view.reduced(node, true),
        "Log" => {
            let sum = view.made_by(node.input(0)?, "ReduceSum")?;
            let exp = view.made_by(sum.input(0)?, "Exp")?;
            view.reduced(sum, true).filter(|_| of(exp.input(0)))
        }
        _ => None,
    }
}

/// `Exp(x)` over its sum, or times the reciprocal of it; also with the largest score taken off, and
/// with changes of type between. That without any of these is read as it is.
pub(super) fn quotient(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    let [above, below] = match node.op() {
        "Div" => [node.input(0)?, node.input(1)?],
        "Mul" => {
            let inverse = |v: ValueId| view.made_by(v, "Reciprocal")?.input(0);
            let (a, b) = (node.input(0)?, node.input(1)?);
            match (inverse(a), inverse(b)) {
                (_, Some(below)) => [a, below],
                (Some(below), None) => [b, below],
                (None, None) => return None,
            }
        }
        _ => return None,
    };
    let (total, mut parts) = view.uncast(below);
    let sum = view.made_by(total, "ReduceSum")?;
    let summed = sum.input(0)?;
    let (exp, dividend) = view.uncast(above);
    let (same, addends) = view.uncast(summed);
    if same != exp {
        return None;
    }
    let scores = view.made_by(exp, "Exp")?.input(0)?;
    parts.extend(dividend.into_iter().chain(addends));
    let types: Vec<DType> = parts
        .into_iter()
        .map(|part| view.dtype(part))
        .collect::<Option<_>>()?;
    let axis = view.reduced(sum, true)?;
    let whole = less_the_largest(view, scores, axis);
    let direct = node.is("Div") && view.same(summed, above) && view.made_by(above, "Exp").is_some();
    if direct && whole.is_none() {
        return None;
    }
    let scores = whole.unwrap_or(scores);
    // The wider type of the parts is that of the whole.
    let out = node.output(0)?;
    let (own, wanted) = (view.dtype(scores)?, view.dtype(out)?);
    // Nothing between them is rounded or cut more than they are.
    let wide = |t: &DType| {
        let wider = [own, wanted].iter().all(|end| t.bits() > end.bits());
        t.is_float() && (*t == own || *t == wanted || wider)
    };
    let cast = own != wanted;
    // Of two types of one width, each rounds what the other holds.
    let apart = cast && own.bits() == wanted.bits();
    if apart || !types.iter().all(wide) || !own.is_float() || !wanted.is_float() {
        return None;
    }
    let is_wider = wanted.bits() >= own.bits();
    let before = |draft: &mut Draft<'_>| draft.emitter().cast(scores, wanted);
    let from = if cast && is_wider {
        before(draft)
    } else {
        scores
    };
    let attrs = [("axis", Attr::Int(i64::try_from(axis).ok()?))];
    let mut weights = draft.op("Softmax", &[from], &attrs);
    if cast && !is_wider {
        weights = draft.emitter().cast(weights, wanted);
    }
    draft.replace(out, weights)
}

/// `x` of `x − ReduceMax(x)`.
fn less_the_largest(view: &View<'_>, value: ValueId, axis: usize) -> Option<ValueId> {
    let minus = view.made_by(value, "Sub")?;
    let largest = view.made_by(minus.input(1)?, "ReduceMax")?;
    let scores = minus.input(0)?;
    let fits = view.same(largest.input(0)?, scores) && view.reduced(largest, true) == Some(axis);
    fits.then_some(scores)
}

/// Softmax of the scores as a matrix of rows, which gets the shape of the scores again.
pub(super) fn of_rows(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    let softmax = node
        .is("Reshape")
        .then(|| view.made_by(node.input(0)?, "Softmax"))??;
    let rows = softmax.input(0)?;
    let scores = view.made_by(rows, "Reshape")?.input(0)?;
    let rank = view.rank(rows)?;
    let kept = |d: &[&[usize]]| d[0] == d[2] && d[0].last() == d[1].last();
    let fits = view.all(&[scores, rows, node.output(0)?], kept)
        && view.axis(softmax, -1, rank)? + 1 == rank;
    let last = view.rank(scores)?.checked_sub(1).filter(|_| fits)?;
    replace(draft, node.output(0)?, scores, last)
}

/// Softmax between two transpositions that undo each other.
pub(super) fn of_transposed(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    let softmax = node
        .is("Transpose")
        .then(|| view.made_by(node.input(0)?, "Softmax"))??;
    let before = view.made_by(softmax.input(0)?, "Transpose")?;
    let (back, there) = (view.order(node)?, view.order(before)?);
    let undone = back
        .iter()
        .map(|a| there.get(*a).copied())
        .eq((0..back.len()).map(Some));
    let axis = view.axis(softmax, -1, there.len())?;
    let axis = there.get(axis).copied().filter(|_| undone)?;
    replace(draft, node.output(0)?, before.input(0)?, axis)
}

fn replace(draft: &mut Draft<'_>, old: ValueId, scores: ValueId, axis: usize) -> Option<()> {
    let attrs = [("axis", Attr::Int(i64::try_from(axis).ok()?))];
    let weights = draft.op("Softmax", &[scores], &attrs);
    draft.replace(old, weights)
}
