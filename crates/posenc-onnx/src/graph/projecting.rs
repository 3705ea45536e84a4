//! ONNX Runtime's `Attention`, which projects its input to queries, keys and values.

use posenc_encodings::opset::Opset;
use posenc_ir::{Attr, Emitter, Node, NodeId, Tensor, ValueId};

/// The features of all heads of queries, keys and values, of which `all` are projected; `None` where queries and keys
/// have not the same number.
pub(crate) fn widths(node: &Node, all: usize) -> Option<[usize; 3]> {
    let given = node.ints("qkv_hidden_sizes").ok()?;
    let sizes: Vec<usize> = match given {
        Some(sizes) => sizes
            .iter()
            .map(|n| usize::try_from(*n).ok())
            .collect::<Option<_>>()?,
        None => vec![all / 3; 3],
    };
    let widths @ [query, key, _] = <[usize; 3]>::try_from(sizes).ok()?;
    let sum = widths
        .iter()
        .try_fold(0usize, |sum, width| sum.checked_add(*width));
    (query == key && sum == Some(all)).then_some(widths)
}

/// Queries, keys and values `[batch, token, hidden]` with their biases; `None` where the operator has no input or no
/// weights.
pub(crate) fn projected(
    out: &mut Emitter<'_>,
    opset: Opset,
    node: &Node,
    widths: [usize; 3],
) -> Option<[ValueId; 3]> {
    let mut all = out.op("MatMul", &[node.input(0)?, node.input(1)?]);
    if let Some(bias) = node.input(2) {
        all = out.op("Add", &[all, bias]);
    }
    opset.split(out, all, 2, &widths).try_into().ok()
}

/// The same attention as `MultiHeadAttention` of these queries, keys and values, with another bias on the scores where
/// one is given: each output of the operator, and what replaces it.
pub(crate) fn separated(
    out: &mut Emitter<'_>,
    opset: Opset,
    id: NodeId,
    [query, key, value]: [ValueId; 3],
    bias: Option<ValueId>,
) -> Vec<(ValueId, ValueId)> {
    let node = out.graph().node(id);
    let mut inputs = vec![Some(query), Some(key), Some(value), None];
    inputs.extend([node.input(3), bias.or(node.input(5))]);
    // Earlier keys and values are stacked along the first axis.
    if let Some(past) = node.input(4) {
        for index in [0, 1] {
            let at = out.constant("place", Tensor::from_i64(&[], &[index]));
            let part = out.op_with("Gather", &[past, at], &[("axis", Attr::Int(0))]);
            inputs.push(Some(part));
        }
    }
    while inputs.pop_if(|v| v.is_none()).is_some() {}
    let mut attrs = vec![];
    for name in ["num_heads", "unidirectional"] {
        if let Ok(Some(n)) = node.int(name) {
            attrs.push((name, Attr::Int(n)));
        }
    }
    for name in ["scale", "mask_filter_value"] {
        if let Ok(Some(x)) = node.float(name) {
            attrs.push((name, Attr::Float(x as f32)));
        }
    }
    // ONNX Runtime computes wrong numbers where earlier keys are given and no new caches are asked for.
    let has_cache = node.input(4).is_some() || node.output(1).is_some();
    let count = if has_cache { 3 } else { 1 };
    let op = ("com.microsoft", "MultiHeadAttention");
    let made = out.node_for(id, op, &inputs, &attrs, count);
    let mut replaced = vec![];
    replaced.extend(node.output(0).zip(made.first().copied()));
    if let (Some(old), [_, key, value]) = (node.output(1), &made[..]) {
        let parts = [*key, *value].map(|part| opset.unsqueeze(out, part, &[0]));
        let both = out.op_with("Concat", &parts, &[("axis", Attr::Int(0))]);
        replaced.push((old, both));
    }
    replaced
}
