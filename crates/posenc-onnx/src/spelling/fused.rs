//! Fused operators on integers: those on the numbers that the integers stand for.

use posenc_ir::{Attr, Node, NodeId, Tensor, ValueId};

use super::draft::Draft;
use super::qlinear;
use super::view::View;

/// The domain of ONNX Runtime's operators.
pub(super) const DOMAIN: &str = "com.microsoft";

/// `QAttention`: `Attention` of the numbers that its input and weights stand for.
pub(super) fn attention(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    if node.domain() != DOMAIN || node.op() != "QAttention" {
        return None;
    }
    // A kernel for the processor leaves the rotation out.
    if !matches!(node.int("do_rotary"), Ok(None | Some(0))) {
        return None;
    }
    let input = dequantized(view, draft, node, [0, 3, 6])?;
    let weights = dequantized(view, draft, node, [1, 4, 7])?;
    let inputs = [
        Some(input),
        Some(weights),
        node.input(2),
        node.input(5),
        node.input(8),
    ];
    let ints = ["num_heads", "unidirectional", "past_present_share_buffer"];
    let floats = ["mask_filter_value", "scale"];
    fused(draft, id, "Attention", &inputs, (&ints, &floats), &[])
}

/// `QEmbedLayerNormalization`: `EmbedLayerNormalization` of the numbers that its tables stand for.
pub(super) fn embedding(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    if node.domain() != DOMAIN || node.op() != "QEmbedLayerNormalization" {
        return None;
    }
    let mut inputs = vec![node.input(0), node.input(1)];
    for slot in 2..7 {
        inputs.push(match node.input(slot) {
            Some(_) => Some(dequantized(view, draft, node, [slot, slot + 6, slot + 11])?),
            None => None,
        });
    }
    inputs.push(node.input(7));
    fused(
        draft,
        id,
        "EmbedLayerNormalization",
        &inputs,
        (&[], &["epsilon"]),
        &[],
    )
}

/// `FusedMatMul` of operands whose first axis precedes those of the batch: the same of these transposed.
pub(super) fn product(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    if node.domain() != DOMAIN {
        return None;
    }
    let is_set = |name: &str| matches!(node.int(name), Ok(Some(n)) if n != 0);
    let flags = ["transBatchA", "transBatchB"].map(is_set);
    if flags == [false; 2] {
        return None;
    }
    let mut inputs = [node.input(0), node.input(1)];
    for (input, _) in inputs.iter_mut().zip(flags).filter(|(_, is_set)| *is_set) {
        let value = (*input)?;
        let last = view.rank(value)?.checked_sub(1)?;
        let order: Vec<usize> = (1..last).chain([0, last]).collect();
        *input = Some(draft.transpose(value, &order));
    }
    let ints = ["transA", "transB"];
    fused(draft, id, "FusedMatMul", &inputs, (&ints, &["alpha"]), &[])
}

/// `Attention` without a bias for what it projects: the same with zeros.
pub(super) fn with_zeros(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    if node.input(2).is_some() {
        return None;
    }
    let weights = node.input(1)?;
    let (width, dtype) = (view.size(weights, 1)?, view.dtype(weights)?);
    let zeros = Tensor::from_f64(dtype, &[width], &vec![0.0; width]);
    let zeros = draft.emitter().constant("bias", zeros);
    let mut inputs = node.inputs().to_vec();
    inputs.resize(inputs.len().max(3), None);
    inputs[2] = Some(zeros);
    let made = draft.emitter().copy(id, &inputs, &[]).ok()?;
    for (old, new) in node.outputs().iter().zip(made) {
        if let (Some(old), Some(new)) = (old, new) {
            draft.replace(*old, new)?;
        }
    }
    Some(())
}

/// What integers stand for, given the slots of the integers, of their scale and of their zero. Several
/// scales are those of the columns of weights.
fn dequantized(
    view: &View<'_>,
    draft: &mut Draft<'_>,
    node: &Node,
    slots: [usize; 3],
) -> Option<ValueId> {
    let axis = (!qlinear::is_one(view, node.input(slots[1])?)).then_some(1);
    qlinear::dequantized(draft, node, slots, axis)
}

/// Lets all that reads a node read another fused operator with these inputs, these attributes of the node, and
/// others.
pub(super) fn fused(
    draft: &mut Draft<'_>,
    id: NodeId,
    op: &str,
    inputs: &[Option<ValueId>],
    (ints, floats): (&[&'static str], &[&'static str]),
    others: &[(&str, Attr)],
) -> Option<()> {
    let node = draft.emitter().graph().node(id);
    let mut attributes = others.to_vec();
    for name in ints {
        attributes.extend(node.int(name).ok()?.map(|n| (*name, Attr::Int(n))));
    }
    for name in floats {
        attributes.extend(
            node.float(name)
                .ok()?
                .map(|x| (*name, Attr::Float(x as f32))),
        );
    }
    let last = inputs.iter().rposition(Option::is_some)?;
    let outputs = node.outputs().to_vec();
    let made = draft.emitter().node_for(
        id,
        (DOMAIN, op),
        &inputs[..=last],
        &attributes,
        outputs.len(),
    );
    for (old, new) in outputs.into_iter().zip(made) {
        if let Some(old) = old {
            draft.replace(old, new)?;
        }
    }
    Some(())
}
