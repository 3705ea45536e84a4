//! Masks that multiply weights behind a softmax, whose rows are then divided by their sums.

use posenc_ir::{Attr, DType, Node, NodeId, ValueId};

use super::draft::Draft;
use super::view::View;

/// The quotient of masked weights and their sums: the weights of masked scores. A row without any is
/// 0 where the sums are kept from being 0, and undefined elsewhere.
pub(super) fn renormalized(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    let out = node.output(0)?;
    let quotient = match node.op() {
        "Div" => node,
        // Rows without any are 0 once more.
        "Where" if view.number(node.input(2)?) == Some(0.0) => {
            let quotient = view.made_by(node.input(1)?, "Div")?;
            let (_, sums, _) = divided(view, quotient)?;
            is_positive(view, node.input(0)?, sums).then_some(quotient)?
        }
        _ => return None,
    };
    let (masked, sums, guarded) = divided(view, quotient)?;
    let is_guarded = guarded || node.op() == "Where";
    let sum = view.made_by(sums, "ReduceSum")?;
    let (weights, mask) = masked_weights(view, masked)?;
    let softmax = view.made_by(weights, "Softmax")?;
    let scores = softmax.input(0)?;
    let rank = view.rank(scores)?;
    let axis = view.axis(softmax, -1, rank)?;
    let whole = view.rank(masked)? == rank && view.reduced(sum, true) == Some(axis);
    // A mask that repeats the scores would give them more rows.
    let keeps = |d: &[&[usize]]| d[0] == d[1];
    if !whole || !view.same(sum.input(0)?, masked) || !view.all(&[masked, scores], keeps) {
        return None;
    }
    let dtype = view.dtype(scores)?;
    let lowest = match dtype {
        DType::F16 => -65504.0,
        DType::BF16 | DType::F32 | DType::F64 => -3e38,
        _ => return None,
    };
    let attrs = [("axis", Attr::Int(i64::try_from(axis).ok()?))];
    let lowest = draft.emitter().scalar("lowest", dtype, lowest);
    let scores = draft.op("Where", &[mask, scores, lowest], &[]);
    let weights = draft.op("Softmax", &[scores], &attrs);
    if !is_guarded {
        return draft.replace(out, weights);
    }
    // Of a row without any, all are equal.
    let mask = draft.emitter().cast(mask, dtype);
    let weights = draft.op("Mul", &[weights, mask], &[]);
    draft.replace(out, weights)
}

/// The dividend and the divisor of a quotient, and whether sums of 0 are replaced by another number.
fn divided(view: &View<'_>, quotient: &Node) -> Option<(ValueId, ValueId, bool)> {
    let masked = view.origin(quotient.input(0)?);
    let Some(choice) = view.made_by(quotient.input(1)?, "Where") else {
        return Some((masked, view.origin(quotient.input(1)?), false));
    };
    let sums = choice.input(1)?;
    let other = view.number(choice.input(2)?)?;
    let holds = other > 0.0 && is_positive(view, choice.input(0)?, sums);
    holds.then_some((masked, view.origin(sums), true))
}

/// Whether a condition says that these numbers are above 0.
fn is_positive(view: &View<'_>, condition: ValueId, numbers: ValueId) -> bool {
    let compares = |op: &str, a: usize, b: usize| -> Option<bool> {
        let node = view.made_by(condition, op)?;
        let zero = view.number(node.input(b)?)? == 0.0;
        Some(zero && view.same(node.input(a)?, numbers))
    };
    compares("Greater", 0, 1) == Some(true) || compares("Less", 1, 0) == Some(true)
}

/// The weights and the mask that are multiplied; the mask is true or false.
fn masked_weights(view: &View<'_>, masked: ValueId) -> Option<(ValueId, ValueId)> {
    let (_, node) = view.maker(masked)?;
    let mask = |value: ValueId| {
        let from = view.made_by(value, "Cast")?.input(0)?;
        (view.dtype(from) == Some(DType::Bool)).then_some(from)
    };
    let (a, b) = (node.input(0)?, node.input(1)?);
    match node.op() {
        "Mul" => mask(b).map(|m| (a, m)).or_else(|| mask(a).map(|m| (b, m))),
        "Where" if view.number(node.input(2)?) == Some(0.0) => Some((b, a)),
        _ => None,
    }
}
