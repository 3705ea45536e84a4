//! Features in turn that are rotated into halves.

use posenc_ir::{Attr, NodeId, ValueId};

use super::draft::Draft;
use super::view::View;
use crate::graph::lane::wrap;

/// `Concat` of two sums one after the other, each of products with the even and with the odd features of
/// one value: the features are put into halves first.
pub(super) fn of_turns(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    if !node.is("Concat") {
        return None;
    }
    let parts: Vec<ValueId> = node.inputs().iter().copied().collect::<Option<_>>()?;
    // Sizes take a trial run.
    if !parts.iter().any(|part| is_sum_of_slices(view, *part)) {
        return None;
    }
    let rank = view.rank(*parts.first()?)?;
    if view.axis(node, 0, rank)? + 1 != rank {
        return None;
    }
    let mut pairs = parts.windows(2).enumerate();
    let begin = pairs.find_map(|(begin, pair)| {
        halves(view, draft, [pair[0], pair[1]], rank)?;
        Some(begin)
    })?;
    if parts.len() == 2 {
        return Some(());
    }
    // What does not rotate joins behind.
    let axis = [("axis", Attr::Int(i64::try_from(rank - 1).ok()?))];
    let rotated = draft.op("Concat", &parts[begin..begin + 2], &axis);
    let mut joined = parts;
    joined.splice(begin..begin + 2, [rotated]);
    let whole = draft.op("Concat", &joined, &axis);
    draft.replace(node.output(0)?, whole)
}

fn halves(view: &View<'_>, draft: &mut Draft<'_>, sums: [ValueId; 2], rank: usize) -> Option<()> {
    let mut whole: Option<ValueId> = None;
    let mut parts: [Option<ValueId>; 2] = [None; 2];
    for sum in sums {
        let mut seen = [false; 2];
        for product in operands(view, sum, &["Add", "Sub"])? {
            let mut turns = operands(view, product, &["Mul"])?
                .into_iter()
                .filter_map(|v| Turn::of(view, v, rank));
            let (Some(turn), None) = (turns.next(), turns.next()) else {
                return None;
            };
            let is_known = whole.is_none_or(|v| v == turn.of);
            let slot = &mut parts[turn.begin];
            if !is_known || slot.is_some_and(|v| v != turn.part) {
                return None;
            }
            whole = Some(turn.of);
            *slot = Some(turn.part);
            seen[turn.begin] = true;
        }
        if seen != [true; 2] {
            return None;
        }
    }
    let (whole, [Some(even), Some(odd)]) = (whole?, parts) else {
        return None;
    };
    let size = view.size(whole, rank - 1).filter(|n| n.is_multiple_of(2))?;
    let half = i64::try_from(size / 2).ok()?;
    // `[.., half, 2]` to `[.., 2, half]`; 0 keeps a size.
    let kept = vec![0; rank - 1];
    let pairs = draft.ints(&[&kept[..], &[half, 2]].concat());
    let pairs = draft.op("Reshape", &[whole, pairs], &[]);
    let order: Vec<usize> = (0..rank - 1).chain([rank, rank - 1]).collect();
    let turned = draft.transpose(pairs, &order);
    let flat = draft.ints(&[&kept[..], &[2 * half]].concat());
    let halves = draft.op("Reshape", &[turned, flat], &[]);
    let last = i64::try_from(rank - 1).ok()?;
    for (part, begin) in [(even, 0), (odd, half)] {
        let [from, to, axis] = [begin, begin + half, last].map(|n| draft.ints(&[n]));
        let half = draft.op("Slice", &[halves, from, to, axis], &[]);
        draft.replace(part, half)?;
    }
    Some(())
}

/// Whether a value is a sum of products with slices.
fn is_sum_of_slices(view: &View<'_>, value: ValueId) -> bool {
    let is_slice = |value: &ValueId| view.made_by(*value, "Slice").is_some();
    let is_product = |value: &ValueId| {
        let operands = operands(view, *value, &["Mul"]);
        operands.is_some_and(|operands| operands.iter().any(is_slice))
    };
    let products = operands(view, value, &["Add", "Sub"]);
    products.is_some_and(|products| products.iter().all(is_product))
}

/// The two operands of one of these operators.
fn operands(view: &View<'_>, value: ValueId, ops: &[&str]) -> Option<[ValueId; 2]> {
    let (_, node) = view.maker(value)?;
    match *node.inputs() {
        [Some(a), Some(b)] if ops.contains(&node.op()) => Some([a, b]),
        _ => None,
    }
}

/// Every second feature of a value.
struct Turn {
    of: ValueId,
    part: ValueId,
    /// 0 or 1.
    begin: usize,
}

impl Turn {
    fn of(view: &View<'_>, part: ValueId, rank: usize) -> Option<Self> {
        let (_, slice) = view.maker(part)?;
        let one = |slot: usize| view.int(slice.input(slot)?);
        let of = slice.input(0).filter(|_| slice.is("Slice"))?;
        let size = i64::try_from(view.size(of, rank - 1)?).ok()?;
        let is_last = view.rank(of)? == rank && wrap(one(3)?, rank)? + 1 == rank;
        let begin = usize::try_from(one(1)?).ok().filter(|n| *n < 2)?;
        let is_turn = is_last && one(4)? == 2 && one(2)? >= size;
        is_turn.then_some(Self {
            of: view.origin(of),
            part: slice.output(0)?,
            begin,
        })
    }
}
