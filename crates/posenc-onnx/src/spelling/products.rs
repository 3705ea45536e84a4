//! Products of matrices by other operators, in parts, and of reversed operands.

use posenc_ir::{Attr, Node, NodeId, ValueId};

use super::draft::Draft;
use super::view::{Part, View, last_exchanged};

/// `ReduceSum` over one axis of `Mul`, whose operands are each repeated along one of the two axes
/// beside it: values that `Unsqueeze` gives the axis, and weights that are stored with it.
pub(super) fn sum_of_products(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    let mul = node
        .is("ReduceSum")
        .then(|| view.made_by(node.input(0)?, "Mul"))??;
    let operands = [mul.input(0)?, mul.input(1)?];
    let unsqueezed = |value: &ValueId| view.made_by(*value, "Unsqueeze").is_some();
    let stored = |value: &ValueId| view.stored(*value).is_some();
    if !operands.iter().any(unsqueezed) || !operands.iter().all(|v| unsqueezed(v) || stored(v)) {
        return None;
    }
    let rank = view.rank(node.input(0)?)?;
    let inner = view.reduced(node, false)?;
    let [first, second] = operands.map(|value| Repeated::of(view, value, rank));
    // Weights may have any axis of size 1; theirs is the one that is left.
    let left = |other: &Repeated| {
        let axes = rank.checked_sub(3)?..rank;
        axes.into_iter().find(|a| *a != other.axis && *a != inner)
    };
    let mut weights = |other: &Repeated, slot: usize| {
        Repeated::stored(view, draft, operands[slot], left(other)?, rank)
    };
    let (mut rows, mut columns) = match (first, second) {
        (Some(first), Some(second)) => (first, second),
        (Some(first), None) => {
            let second = weights(&first, 1)?;
            (first, second)
        }
        (None, Some(second)) => (weights(&second, 0)?, second),
        (None, None) => return None,
    };
    if rows.axis < columns.axis {
        std::mem::swap(&mut rows, &mut columns);
    }
    // Rows are repeated along the columns, and columns along the rows.
    let mut axes = [rows.axis, columns.axis, inner];
    axes.sort_unstable();
    let [row, column] = [columns.axis, rows.axis];
    if row == column || axes != [rank.checked_sub(3)?, rank - 2, rank - 1] {
        return None;
    }
    let wide = [&rows, &columns].map(|of| of.own_axis(inner));
    let [Some(i), Some(j)] = wide else {
        return None;
    };
    let same = |d: &[&[usize]]| d[0].get(i).is_some() && d[0].get(i) == d[1].get(j);
    if !view.all(&[rows.spread, columns.spread], same) || !view.dtype(node.input(0)?)?.is_float() {
        return None;
    }
    let left = matrix(draft, &rows, inner < row)?;
    let right = matrix(draft, &columns, column < inner)?;
    let product = draft.op("MatMul", &[left, right], &[]);
    draft.replace(node.output(0)?, product)
}

/// An operand without the axis that it is repeated along, its last two axes exchanged if asked for.
fn matrix(draft: &mut Draft<'_>, of: &Repeated, exchanged: bool) -> Option<ValueId> {
    if of.rank < 2 {
        return None;
    }
    if !exchanged {
        return Some(of.value);
    }
    Some(draft.transpose(of.value, &last_exchanged(of.rank)?))
}

/// A value with one more axis, of size 1.
struct Repeated {
    value: ValueId,
    /// Its axes.
    rank: usize,
    /// The value with this axis.
    spread: ValueId,
    /// The axis, counted in a product of all axes.
    axis: usize,
    /// Axes of the product that the value lacks in front.
    lacks: usize,
}

impl Repeated {
    fn of(view: &View<'_>, value: ValueId, rank: usize) -> Option<Self> {
        let node = view.made_by(value, "Unsqueeze")?;
        let own = view.rank(value)?;
        let [axis] = view.axes(node, own)?[..] else {
            return None;
        };
        let lacks = rank.checked_sub(own)?;
        Some(Self {
            value: node.input(0)?,
            rank: own.checked_sub(1)?,
            spread: value,
            axis: axis + lacks,
            lacks,
        })
    }

    /// Weights of a product of this rank that have size 1 along an axis of it.
    fn stored(
        view: &View<'_>,
        draft: &mut Draft<'_>,
        value: ValueId,
        axis: usize,
        rank: usize,
    ) -> Option<Self> {
        let mut dims = view.stored(value)?.dims.clone();
        let lacks = rank.checked_sub(dims.len())?;
        let own = axis.checked_sub(lacks)?;
        if dims.remove(own) != 1 {
            return None;
        }
        let dims: Option<Vec<i64>> = dims.iter().map(|n| i64::try_from(*n).ok()).collect();
        let dims = draft.ints(&dims?);
        Some(Self {
            value: draft.op("Reshape", &[value, dims], &[]),
            rank: rank - lacks - 1,
            spread: value,
            axis,
            lacks,
        })
    }

    /// An axis of the product as one of the value.
    fn own_axis(&self, axis: usize) -> Option<usize> {
        axis.checked_sub(self.lacks)
    }
}

/// The sum of products of parts of the inner axis, and products of parts of the rows or with parts
/// of the columns, joined.
pub(super) fn in_parts(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    let out = node.output(0)?;
    if !matches!(node.op(), "Add" | "Concat") {
        return None;
    }
    let factors = |v: &Option<ValueId>| {
        let product = view.made_by((*v)?, "MatMul")?;
        Some([product.input(0)?, product.input(1)?])
    };
    let pairs: Vec<[ValueId; 2]> = node.inputs().iter().map(factors).collect::<Option<_>>()?;
    if pairs.len() < 2 {
        return None;
    }
    let joined = match node.op() {
        "Add" => None,
        _ => {
            let rank = view.rank(out)?;
            Some(rank.checked_sub(view.axis(node, 0, rank)?)?)
        }
    };
    // A product with a vector has no columns, and one axis less.
    let matrices = |pair: &[ValueId; 2]| view.rank(pair[1]).is_some_and(|rank| rank >= 2);
    if !pairs.iter().all(matrices) {
        return None;
    }
    let all = |side: usize| pairs.iter().map(move |p| p[side]);
    let one = |side: usize| all(side).all(|v| view.same(v, pairs[0][side]));
    let [a, b] = match joined {
        None => [
            whole(view, all(0), 1)?,
            whole(view, all(1), 2).or_else(|| constants(view, draft, all(1), -2))?,
        ],
        Some(2) if one(1) => [whole(view, all(0), 2)?, pairs[0][1]],
        Some(1) if one(0) => [
            pairs[0][0],
            whole(view, all(1), 1).or_else(|| constants(view, draft, all(1), -1))?,
        ],
        _ => return None,
    };
    let product = draft.op("MatMul", &[a, b], &[]);
    draft.replace(out, product)
}

/// The value whose parts these are, along the axis that is so many from the end.
fn whole(view: &View<'_>, values: impl Iterator<Item = ValueId>, back: usize) -> Option<ValueId> {
    let parts: Vec<Part> = values.map(|v| view.part(v)).collect::<Option<_>>()?;
    let (whole, axis) = Part::whole(&parts)?;
    (view.rank(whole)? == axis + back).then_some(whole)
}

/// Stored matrices, joined along an axis.
fn constants(
    view: &View<'_>,
    draft: &mut Draft<'_>,
    values: impl Iterator<Item = ValueId>,
    axis: i64,
) -> Option<ValueId> {
    let values: Vec<ValueId> = values.map(|v| view.origin(v)).collect();
    // Where sizes of the other axis differ, smaller ones are repeated by what joins the products.
    let other = if axis == -1 { 0 } else { 1 };
    let size = |v: &ValueId| match view.stored(*v)?.dims[..] {
        [a, b] => Some([a, b][other]),
        _ => None,
    };
    let sizes: Vec<usize> = values.iter().map(size).collect::<Option<_>>()?;
    if sizes.iter().any(|size| *size != sizes[0]) {
        return None;
    }
    Some(draft.op("Concat", &values, &[("axis", Attr::Int(axis))]))
}

/// A product for each head, joined along the axis of heads.
pub(super) fn per_head(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    let out = node.output(0).filter(|_| node.is("Concat"))?;
    view.made_by(node.input(0)?, "Unsqueeze")?;
    let rank = view.rank(out)?;
    let axis = view.axis(node, 0, rank)?;
    if axis + 2 >= rank {
        return None;
    }
    let mut operands: Option<[ValueId; 2]> = None;
    for (head, part) in node.inputs().iter().enumerate() {
        let spread = view.made_by((*part)?, "Unsqueeze")?;
        let product = view.made_by(spread.input(0)?, "MatMul")?;
        let pick = |slot: usize| picked(view, product.input(slot)?, axis, head);
        let pair = [pick(0)?, pick(1)?];
        let same = operands.is_none_or(|o| view.same(o[0], pair[0]) && view.same(o[1], pair[1]));
        if !same || view.axes(spread, rank)? != [axis] {
            return None;
        }
        operands = Some(pair);
    }
    let [a, b] = operands?;
    let count = node.inputs().len();
    let all = |v: ValueId| view.rank(v) == Some(rank) && view.size(v, axis) == Some(count);
    if !all(a) || !all(b) {
        return None;
    }
    let product = draft.op("MatMul", &[a, b], &[]);
    draft.replace(out, product)
}

/// The value that `value` is the index `at` of, along `axis`.
fn picked(view: &View<'_>, value: ValueId, axis: usize, at: usize) -> Option<ValueId> {
    let gather = view.made_by(value, "Gather")?;
    let of = gather.input(0)?;
    let along = view.axis(gather, 0, view.rank(of)?)? == axis;
    let index = gather.input(1)?;
    let single = view.rank(index)? == 0;
    let at = i64::try_from(at).ok()?;
    (along && single && view.int(index)? == at).then_some(of)
}

/// A product whose inner axis is reversed in both operands.
pub(super) fn of_reversed(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    if !node.is("MatMul") {
        return None;
    }
    let (a, b) = (node.input(0)?, node.input(1)?);
    let a = reversed(view, a, 1)?;
    let b = reversed(view, b, 2)?;
    let product = draft.op("MatMul", &[a, b], &[]);
    draft.replace(node.output(0)?, product)
}

/// What a `Slice` reverses along the axis that is so many from the end.
fn reversed(view: &View<'_>, value: ValueId, back: usize) -> Option<ValueId> {
    let node: &Node = view.made_by(value, "Slice")?;
    let of = node.input(0)?;
    let rank = view.rank(of)?;
    let one = |slot: usize| view.int(node.input(slot)?);
    let axis = crate::graph::lane::wrap(one(3)?, rank)?;
    let whole = one(1)? == -1 && one(2)? < -(1 << 31) && one(4)? == -1;
    (whole && axis + back == rank).then_some(of)
}
