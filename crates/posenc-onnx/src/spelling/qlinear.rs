//! Operators on integers with a scale (`QLinearMatMul` and others): the operators on the numbers that
//! the integers stand for, and a `QuantizeLinear` of what these give.

use posenc_ir::{Attr, DType, Node, NodeId, ValueId};

use super::draft::Draft;
use super::view::View;

const CONTRIB: &str = "com.microsoft";

/// Where an operator has the integers, the scale and the zero of an operand.
type Slots = [usize; 3];

const FIRST: Slots = [0, 1, 2];
const SECOND: Slots = [3, 4, 5];

/// What an operator on integers computes.
struct Form {
    /// The operator on numbers.
    op: &'static str,
    operands: &'static [Slots],
    /// The first of two slots: the scale and the zero of the result.
    result: usize,
    /// The slot of 32-bit integers that are added, whose scale is that of the products.
    bias: Option<usize>,
}

impl Form {
    const fn new(op: &'static str, operands: &'static [Slots], result: usize) -> Self {
        Self {
            op,
            operands,
            result,
            bias: None,
        }
    }

    fn of(node: &Node) -> Option<Self> {
        const BOTH: &[Slots] = &[FIRST, SECOND];
        let with = |bias: usize, form: Self| Self {
            bias: Some(bias),
            ..form
        };
        Some(match (node.domain(), node.op()) {
            ("", "QLinearMatMul") => Self::new("MatMul", BOTH, 6),
            ("", "QLinearConv") => with(8, Self::new("Conv", BOTH, 6)),
            (CONTRIB, "QGemm") => with(6, Self::new("Gemm", BOTH, 7)),
            (CONTRIB, "QLinearAdd") => Self::new("Add", BOTH, 6),
            (CONTRIB, "QLinearMul") => Self::new("Mul", BOTH, 6),
            (CONTRIB, "QLinearWhere") => Self::new("Where", &[[1, 2, 3], [4, 5, 6]], 7),
            (CONTRIB, "QLinearSigmoid") => Self::new("Sigmoid", &[FIRST], 3),
            (CONTRIB, "QLinearLeakyRelu") => Self::new("LeakyRelu", &[FIRST], 3),
            (CONTRIB, "QLinearSoftmax") => Self::new("Softmax", &[FIRST], 3),
            (CONTRIB, "QLinearAveragePool") => Self::new("AveragePool", &[FIRST], 3),
            (CONTRIB, "QLinearGlobalAveragePool") => Self::new("GlobalAveragePool", &[FIRST], 3),
            _ => return None,
        })
    }
}

/// An operator on integers: the same on numbers.
pub(super) fn operator(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    let form = Form::of(node).filter(|_| view.can_quantize())?;
    let out = node.output(0)?;
    let attributes = attributes(view, node)?;
    let to: Vec<ValueId> = match [form.result, form.result + 1].map(|slot| node.input(slot)) {
        [Some(scale), zero] => [scale].into_iter().chain(zero).collect(),
        // `QGemm` gives numbers where the result has no scale.
        [None, None] if form.op == "Gemm" => vec![],
        _ => return None,
    };
    let is_typed = to.len() != 1 || view.dtype(out)? == DType::U8;
    let have_one = to.iter().all(|v| is_one(view, *v));
    let axes = axes(view, node, &form)?;
    if !is_typed || !have_one {
        return None;
    }
    let mut inputs = vec![];
    if form.op == "Where" {
        inputs.push(node.input(0)?);
    }
    for (slots, axis) in form.operands.iter().zip(axes) {
        inputs.push(dequantized(draft, node, *slots, axis)?);
    }
    if let Some(bias) = form.bias.and_then(|slot| node.input(slot)) {
        let [first, second] = [FIRST[1], SECOND[1]].map(|slot| node.input(slot));
        let scale = draft.op("Mul", &[first?, second?], &[]);
        let each = (!is_one(view, second?)).then_some(("axis", Attr::Int(0)));
        let each: Vec<(&str, Attr)> = each.into_iter().collect();
        inputs.push(draft.op("DequantizeLinear", &[bias, scale], &each));
    }
    let numbers = draft.op(form.op, &inputs, &attributes);
    if to.is_empty() {
        return draft.replace(out, numbers);
    }
    let to: Vec<ValueId> = [numbers].into_iter().chain(to).collect();
    let whole = draft.op("QuantizeLinear", &to, &[]);
    draft.replace(out, whole)
}

/// `QLinearConcat`: `Concat` of numbers.
pub(super) fn concat(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    let is_it = (node.domain(), node.op()) == (CONTRIB, "QLinearConcat") && view.can_quantize();
    let out = node.output(0).filter(|_| is_it)?;
    let (scale, zero) = (node.input(0)?, node.input(1)?);
    let attributes = attributes(view, node)?;
    let operands = (2..node.inputs().len()).step_by(3);
    let scales = operands.clone().map(|slot| node.input(slot + 1));
    let mut scales = scales.chain([Some(scale)]);
    if !scales.all(|scale| scale.is_some_and(|scale| is_one(view, scale))) {
        return None;
    }
    let parts = operands.map(|slot| dequantized(draft, node, [slot, slot + 1, slot + 2], None));
    let parts: Vec<ValueId> = parts.collect::<Option<_>>()?;
    let numbers = draft.op("Concat", &parts, &attributes);
    let whole = draft.op("QuantizeLinear", &[numbers, scale, zero], &[]);
    draft.replace(out, whole)
}

/// What integers stand for, given the slots of the integers, of their scale and of their zero, and the
/// axis of several scales.
pub(super) fn dequantized(
    draft: &mut Draft<'_>,
    node: &Node,
    slots: Slots,
    axis: Option<usize>,
) -> Option<ValueId> {
    let [whole, scale, zero] = slots.map(|slot| node.input(slot));
    let inputs: Vec<ValueId> = [whole?, scale?].into_iter().chain(zero).collect();
    let axis = axis.map(|axis| ("axis", Attr::Int(axis as i64)));
    let axis: Vec<(&str, Attr)> = axis.into_iter().collect();
    Some(draft.op("DequantizeLinear", &inputs, &axis))
}

/// Whether a value has one element.
pub(super) fn is_one(view: &View<'_>, value: ValueId) -> bool {
    view.all(&[value], |dims| dims[0].iter().product::<usize>() == 1)
}

/// The axis of several scales of each operand; `None` where an operand has them that may have one only.
fn axes(view: &View<'_>, node: &Node, form: &Form) -> Option<Vec<Option<usize>>> {
    let axis = |(nth, slots): (usize, &Slots)| {
        let scale = node.input(slots[1])?;
        if is_one(view, scale) {
            return Some(None);
        }
        let is_list = nth == 1 && view.rank(scale)? == 1 && view.is_modern();
        let is_turned = node.int("transB").ok()?.unwrap_or(0) != 0;
        let axis = match form.op {
            "MatMul" => view.rank(node.input(slots[0])?)?.checked_sub(1)?,
            "Gemm" if !is_turned => 1,
            "Gemm" | "Conv" => 0,
            _ => return None,
        };
        is_list.then_some(Some(axis))
    };
    form.operands.iter().enumerate().map(axis).collect()
}

/// The attributes of a node as those of the operator on numbers; `None` where that has no such.
fn attributes<'n>(view: &View<'_>, node: &'n Node) -> Option<Vec<(&'n str, Attr)>> {
    let mut all = vec![];
    for attribute in node.attributes() {
        let name = attribute.name();
        let int = node.int(name).ok().flatten();
        match name {
            "channels_last" if int == Some(0) => continue,
            // The version of the operator, which counts only where the axis is not the last.
            "opset" if node.op() == "QLinearSoftmax" => {
                let rank = view.rank(node.input(0)?)?;
                (view.axis(node, -1, rank)? + 1 == rank).then_some(())?;
                continue;
            }
            // The bias has no factor then.
            "alpha" if node.op() == "QGemm" => {
                (node.float(name).ok()? == Some(1.0)).then_some(())?;
                continue;
            }
            "channels_last" => return None,
            _ => {}
        }
        let value = int.map(Attr::Int).or_else(|| {
            let float = node.float(name).ok().flatten();
            let ints = || node.ints(name).ok().flatten();
            let text = || node.string(name).ok().flatten();
            float
                .map(|x| Attr::Float(x as f32))
                .or_else(|| ints().map(|all| Attr::Ints(all.to_vec())))
                .or_else(|| text().map(|text| Attr::Str(text.to_owned())))
        });
        all.push((name, value?));
    }
    Some(all)
}
