//! Layouts by other operators, and layouts that undo each other.

use posenc_ir::{Attr, Node, NodeId, ValueId};

use super::draft::Draft;
use super::view::View;
use crate::graph::einsum::Equation;

/// `Einsum` of one operand, which exchanges its axes.
pub(super) fn einsum(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    if !node.is("Einsum") || node.inputs().len() != 1 {
        return None;
    }
    let value = node.input(0)?;
    let letters = Equation::read(node.string("equation").ok()??, &[view.rank(value)?])?;
    let [operand] = &letters.operands[..] else {
        return None;
    };
    let mut sorted = operand.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() != operand.len() || letters.result.len() != operand.len() {
        return None;
    }
    let place = |c: &char| operand.iter().position(|o| o == c);
    let order: Vec<usize> = letters.result.iter().map(place).collect::<Option<_>>()?;
    if !(0..order.len()).all(|axis| order.contains(&axis)) {
        return None;
    }
    let moved = draft.transpose(value, &order);
    draft.replace(node.output(0)?, moved)
}

/// The sum of values that are each padded with zeros where the others are: they follow each other.
pub(super) fn padded(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    if !matches!(node.op(), "Add" | "Sum") {
        return None;
    }
    let mut pads: Vec<&Node> = vec![];
    let mut terms: Vec<ValueId> = node.inputs().iter().copied().collect::<Option<_>>()?;
    while let Some(value) = terms.pop() {
        let (_, made) = view.maker(view.unchanged(value))?;
        match made.op() {
            "Add" | "Sum" if pads.len() < MOST => terms.extend(made.inputs().iter().flatten()),
            "Pad" => pads.push(made),
            _ => return None,
        }
    }
    // A part that is as long as the whole is not padded.
    let axis = pads.iter().find_map(|pad| zeros(view, pad)?.axis)?;
    let part = |pad: &&Node| Padded::of(view, pad, axis);
    let mut parts: Vec<Padded> = pads.iter().map(part).collect::<Option<_>>()?;
    parts.sort_by_key(|p| (p.begin, p.width));
    let first = parts.first()?;
    let mut at = 0usize;
    for part in &parts {
        if part.total != first.total || part.begin != at {
            return None;
        }
        at = at.checked_add(part.width)?;
    }
    if at != first.total || parts.len() < 2 {
        return None;
    }
    let attrs = [("axis", Attr::Int(i64::try_from(axis).ok()?))];
    let values: Vec<ValueId> = parts.iter().map(|p| p.value).collect();
    // A sum repeats what is of size 1, and what has fewer axes.
    let beside = |d: &[usize]| -> Vec<usize> {
        let others = d.iter().enumerate().filter(|(a, _)| *a != axis);
        others.map(|(_, n)| *n).collect()
    };
    let alike = |d: &[&[usize]]| {
        let mut all = d.iter().map(|d| (d.len(), beside(d)));
        let first = all.next();
        all.all(|own| Some(own) == first)
    };
    if !view.all(&values, alike) {
        return None;
    }
    let joined = draft.op("Concat", &values, &attrs);
    draft.replace(node.output(0)?, joined)
}

/// The most terms of a sum.
const MOST: usize = 64;

/// A value with zeros before and behind it along one axis.
struct Padded {
    value: ValueId,
    begin: usize,
    width: usize,
    total: usize,
}

impl Padded {
    fn of(view: &View<'_>, node: &Node, axis: usize) -> Option<Self> {
        let Zeros {
            axis: own,
            before,
            behind,
        } = zeros(view, node)?;
        let value = node.input(0)?;
        let width = view.size(value, axis)?;
        let total = before.checked_add(width)?.checked_add(behind)?;
        own.is_none_or(|own| own == axis).then_some(Self {
            value,
            begin: before,
            width,
            total,
        })
    }
}

/// The zeros that a `Pad` adds.
struct Zeros {
    /// `None` where it adds none.
    axis: Option<usize>,
    before: usize,
    behind: usize,
}

/// The zeros that a `Pad` adds along at most one axis.
fn zeros(view: &View<'_>, node: &Node) -> Option<Zeros> {
    let rank = view.rank(node.input(0)?)?;
    let fills = (node.input(2)).is_none_or(|v| view.number(v) == Some(0.0));
    let mode = node.string("mode").ok()?;
    let pads = view.ints(node.input(1)?)?;
    let is_constant = mode.is_none_or(|mode| mode == "constant");
    if !fills || !is_constant || node.input(3).is_some() || pads.len() != 2 * rank {
        return None;
    }
    let pads = pads.iter().map(|n| usize::try_from(*n).ok());
    let pads: Vec<usize> = pads.collect::<Option<_>>()?;
    let mut padded = (0..rank).filter(|a| pads[*a] > 0 || pads[rank + a] > 0);
    let axis = padded.next();
    padded.next().is_none().then(|| Zeros {
        axis,
        before: axis.map_or(0, |a| pads[a]),
        behind: axis.map_or(0, |a| pads[rank + a]),
    })
}

/// A layout that undoes the one before it.
pub(super) fn undone(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    let is_layout = matches!(node.op(), "Transpose" | "Reshape" | "Squeeze" | "Concat");
    let given = node.input(0).filter(|_| is_layout)?;
    let source = match node.op() {
        "Concat" => {
            let made = |v: &Option<ValueId>| view.made_by((*v)?, "Slice")?.input(0);
            let split = |v: &Option<ValueId>| view.made_by((*v)?, "Split")?.input(0);
            let of = |v: &Option<ValueId>| made(v).or_else(|| split(v));
            let first = of(node.inputs().first()?)?;
            if !node
                .inputs()
                .iter()
                .all(|v| of(v).is_some_and(|v| view.same(v, first)))
            {
                return None;
            }
            let parts: Option<Vec<_>> = (node.inputs().iter()).map(|v| view.part((*v)?)).collect();
            let parts = parts?;
            let (whole, axis) = super::view::Part::whole(&parts)?;
            let same = view.axis(node, 0, view.rank(whole)?) == Some(axis);
            same.then_some(whole)?
        }
        "Transpose" => {
            let before = view.made_by(given, "Transpose")?;
            let (back, there) = (view.order(node)?, view.order(before)?);
            let mut places = back.iter().map(|a| there.get(*a).copied());
            let undone = (0..back.len()).all(|i| places.next() == Some(Some(i)));
            undone.then(|| before.input(0)).flatten()?
        }
        "Squeeze" => {
            let before = view.made_by(given, "Unsqueeze")?;
            let [mut a, mut b] = [view.ints(node.input(1)?)?, view.ints(before.input(1)?)?];
            if a.iter().chain(&b).any(|axis| *axis < 0) {
                let rank = view.rank(given)?;
                let front = |of: &Node| -> Option<Vec<i64>> {
                    let axes = view.axes(of, rank)?.into_iter();
                    axes.map(|axis| i64::try_from(axis).ok()).collect()
                };
                (a, b) = (front(node)?, front(before)?);
            }
            a.sort_unstable();
            b.sort_unstable();
            (a == b).then(|| before.input(0)).flatten()?
        }
        _ => {
            let before = view.made_by(given, "Reshape")?;
            let shape = view.made_by(node.input(1)?, "Shape")?;
            let whole = shape.attributes().is_empty();
            let source = before.input(0)?;
            (whole && view.same(shape.input(0)?, source)).then_some(source)?
        }
    };
    draft.replace(node.output(0)?, source)
}
