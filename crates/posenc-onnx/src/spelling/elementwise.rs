//! Products that contract nothing, by an operator that could.

use posenc_ir::{NodeId, ValueId};

use super::draft::Draft;
use super::view::View;
use crate::graph::einsum::Equation;

/// `Einsum` of two operands of which each index is in the result: their product, element by element.
pub(super) fn einsum(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    let out = node.output(0).filter(|_| node.is("Einsum"))?;
    let operands: [ValueId; 2] = match node.inputs() {
        [Some(a), Some(b)] => [*a, *b],
        _ => return None,
    };
    // What depends on no content is evaluated as it is.
    if !view.is_content(out) || !view.dtype(out)?.is_float() {
        return None;
    }
    let ranks = [view.rank(operands[0])?, view.rank(operands[1])?];
    let letters = Equation::read(node.string("equation").ok()??, &ranks)?;
    if repeats(&letters.result) {
        return None;
    }
    let mut placed = vec![];
    for (value, own) in operands.into_iter().zip(&letters.operands) {
        placed.push(as_result(draft, value, own, &letters.result)?);
    }
    let product = draft.op("Mul", &placed, &[]);
    draft.replace(out, product)
}

fn repeats(letters: &[char]) -> bool {
    (1..letters.len()).any(|i| letters[..i].contains(&letters[i]))
}

/// An operand with its axes in the order of the result, and axes of size 1 for those that it lacks
/// behind its first one.
fn as_result(
    draft: &mut Draft<'_>,
    value: ValueId,
    own: &[char],
    result: &[char],
) -> Option<ValueId> {
    if repeats(own) || !own.iter().all(|c| result.contains(c)) {
        return None;
    }
    let sorted: Vec<char> = result.iter().filter(|c| own.contains(c)).copied().collect();
    let place = |c: &char| own.iter().position(|o| o == c);
    let order: Vec<usize> = sorted.iter().map(place).collect::<Option<_>>()?;
    let mut value = value;
    if !order.is_sorted() {
        value = draft.transpose(value, &order);
    }
    let first = result.iter().position(|c| own.contains(c))?;
    let lacks = (first..result.len()).filter(|axis| !own.contains(&result[*axis]));
    let axes: Vec<i64> = lacks.map(|axis| (axis - first) as i64).collect();
    if axes.is_empty() {
        return Some(value);
    }
    let axes = draft.ints(&axes);
    Some(draft.op("Unsqueeze", &[value, axes], &[]))
}
