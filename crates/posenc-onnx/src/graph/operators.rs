//! What operators do to their inputs, by name: one list for each question.
//!
//! A walk that follows content uses these; where a walk has a list of its own, it says why.

use posenc_ir::{Graph, Node, ValueId};

/// Operators that walks follow content through, element by element: each element of the result is
/// computed from those at its place, after broadcasting.
pub(crate) fn is_elementwise(op: &str) -> bool {
    matches!(
        op,
        "Add"
            | "Sum"
            | "Sub"
            | "Mul"
            | "Div"
            | "Pow"
            | "Neg"
            | "Abs"
            | "Sqrt"
            | "Reciprocal"
            | "Exp"
            | "Tanh"
            | "Sigmoid"
            | "Relu"
            | "Erf"
            | "Cast"
            | "CastLike"
            | "Identity"
            | "Dropout"
            | "Where"
            | "Clip"
            | "Min"
            | "Max"
            | "Round"
            | "QuantizeLinear"
            | "DequantizeLinear"
    )
}

/// Operators that pass every element on, possibly as another type.
pub(crate) fn is_copy(op: &str) -> bool {
    matches!(op, "Identity" | "Cast" | "CastLike" | "Dropout")
}

/// Whether an operator rotates its first input by the cosines and sines of positions.
pub(crate) fn is_rotary(node: &Node) -> bool {
    matches!(
        (node.domain(), node.op()),
        ("" | "com.microsoft", "RotaryEmbedding") | ("com.microsoft", "MRotaryEmbedding")
    )
}

/// How an operator that rotates shares out its pairs among streams of positions: the pairs of each, and whether they
/// take turns. `None` where it reads one stream.
pub(crate) fn position_sections(node: &Node) -> Option<(&[i64], bool)> {
    if (node.domain(), node.op()) != ("com.microsoft", "MRotaryEmbedding") {
        return None;
    }
    let sections = node.ints("mrope_section").ok()??;
    Some((sections, node.int("mrope_layout").ok()? == Some(1)))
}

/// Operators that change the shape and keep the elements in order.
pub(crate) fn is_reshape(op: &str) -> bool {
    matches!(op, "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze")
}

/// Operators that change the shape or the order of the elements and keep their number.
pub(crate) fn is_rearrangement(op: &str) -> bool {
    is_reshape(op) || op == "Transpose"
}

/// Operators that move or repeat elements without computing.
pub(crate) fn is_layout(op: &str) -> bool {
    is_rearrangement(op) || matches!(op, "Expand" | "Tile")
}

/// Operators that write other elements into their first input, in place of what is there.
pub(crate) fn is_write(node: &Node) -> bool {
    let replaces = matches!(node.string("reduction"), Ok(None | Some("none")));
    written_slots(node).is_some() && replaces && node.domain().is_empty()
}

/// The inputs of an operator that writes: the places, and what is written there.
pub(crate) fn written_slots(node: &Node) -> Option<(usize, usize)> {
    match node.op() {
        "ScatterND" | "ScatterElements" | "Scatter" => Some((1, 2)),
        "TensorScatter" => Some((2, 1)),
        _ => None,
    }
}

/// The input of two slices, where a `Concat` puts another value between them.
pub(crate) fn spliced(graph: &Graph, node: &Node) -> Option<ValueId> {
    let &[Some(before), Some(_), Some(after)] = node.inputs() else {
        return None;
    };
    let cut = |part: ValueId| {
        let (id, _) = graph.producer(part)?;
        let node = graph.node(id);
        node.input(0).filter(|_| node.is("Slice"))
    };
    let whole = cut(before).filter(|_| node.is("Concat"))?;
    (cut(after) == Some(whole)).then_some(whole)
}

/// Inputs of an operator of attention that hide or add to scores, `[.., query, key]` first.
pub(crate) fn bias_slots(node: &Node) -> &'static [usize] {
    match (node.domain(), node.op()) {
        ("", "Attention") => &[3],
        (_, "MultiHeadAttention") => &[5, 4],
        (_, "Attention") => &[5, 3],
        (_, "GroupQueryAttention") => &[10, 5],
        (_, "SparseAttention") => &[8],
        ("com.microsoft", "DecoderMaskedMultiHeadAttention") => &[4, 3],
        ("com.microsoft", "DecoderMaskedSelfAttention") => &[5, 3],
        ("com.microsoft", "QAttention") => &[5],
        _ => &[],
    }
}

/// Whether an operator of attention reads how many tokens each sequence has: these are the first ones. `rank` is that
/// of a value.
pub(crate) fn counts_tokens(node: &Node, rank: impl Fn(ValueId) -> Option<usize>) -> bool {
    let is_list = |slot: usize| node.input(slot).and_then(&rank) == Some(1);
    match (node.domain(), node.op()) {
        ("", "Attention") => node.input(6).is_some(),
        ("com.microsoft", "GroupQueryAttention" | "SparseAttention" | "PagedAttention") => true,
        ("com.microsoft", "Attention") => is_list(3),
        ("com.microsoft", "MultiHeadAttention") => is_list(4),
        ("com.microsoft", "QAttention") => is_list(5),
        _ => false,
    }
}

/// Inputs of an operator of attention that are lengths of sequences with their cache, and by how much less than all
/// tokens these numbers are.
pub(crate) fn length_slots(node: &Node) -> &'static [(usize, usize)] {
    match (node.domain(), node.op()) {
        ("", "Attention") => &[(6, 0)],
        ("com.microsoft", "GroupQueryAttention") => &[(5, 1), (6, 0)],
        ("com.microsoft", "SparseAttention") => &[(7, 0), (8, 0)],
        _ => &[],
    }
}

/// Inputs of an operator of attention that are the keys and values of earlier steps.
pub(crate) fn cache_slots(node: &Node) -> &'static [usize] {
    match (node.domain(), node.op()) {
        ("", "Attention") => &[4, 5],
        ("com.microsoft", "Attention" | "DecoderMaskedSelfAttention") => &[4],
        ("com.microsoft", "MultiHeadAttention") => &[6, 7],
        ("com.microsoft", "DecoderMaskedMultiHeadAttention") => &[5, 6],
        ("com.microsoft", "GroupQueryAttention" | "SparseAttention" | "PagedAttention") => &[3, 4],
        ("com.microsoft", "QAttention") => &[8],
        _ => &[],
    }
}

/// The axis of the rows that an operator picks; `None` where its attribute is of another type.
pub(crate) fn gather_axis(node: &Node) -> Option<i64> {
    let attribute = match node.op() {
        "GatherBlockQuantized" => "gather_axis",
        _ => "axis",
    };
    Some(node.int(attribute).ok()?.unwrap_or(0))
}

/// Products of two matrices that may both carry content.
pub(crate) fn is_product(node: &Node) -> bool {
    match node.domain() {
        "" => matches!(node.op(), "MatMul" | "Gemm" | "Einsum" | "QLinearMatMul"),
        "com.microsoft" => node.op() == "FusedMatMul",
        _ => false,
    }
}

/// Operators that mix features by weights.
pub(crate) fn is_projection(node: &Node) -> bool {
    matches!(
        node.op(),
        "MatMul"
            | "Gemm"
            | "Einsum"
            | "Conv"
            | "FusedMatMul"
            | "FusedGemm"
            | "FusedConv"
            | "MatMulInteger"
            | "MatMulIntegerToFloat"
            | "DynamicQuantizeMatMul"
            | "QLinearMatMul"
            | "QGemm"
            | "QLinearConv"
            | "ConvInteger"
            | "MatMulNBits"
            | "MatMulBnb4"
            | "NhwcConv"
    )
}

/// Normalizations as one operator.
pub(crate) fn is_norm(node: &Node) -> bool {
    node.op().ends_with("Normalization")
}

/// Normalizations that first add their two inputs.
pub(crate) fn is_skip_norm(node: &Node) -> bool {
    let skips = ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"];
    node.domain() == "com.microsoft" && skips.contains(&node.op())
}

/// Whether a node gives other numbers in every run.
pub(crate) fn is_random(node: &Node) -> bool {
    node.op().starts_with("Random") || matches!(node.op(), "Bernoulli" | "Multinomial")
}

/// Whether a node may be attention, or a part of it that nothing else has.
pub(crate) fn may_attend(node: &Node) -> bool {
    node.is("Softmax") || node.op().ends_with("Attention")
}

#[cfg(test)]
mod tests {
    use posenc_ir::Model;

    use super::*;

    #[test]
    fn attention_counts_tokens_where_it_reads_lengths() {
        let counts = |node: &str, rank: usize| {
            let text = format!(
                "<ir_version: 10, opset_import: [\"\" : 24, \"com.microsoft\" : 1]> g (float x, int64 m) => (float y) \
                 {{ y = {node} }}"
            );
            let model = Model::parse(&text).unwrap();
            let (_, node) = model.graph().nodes().next().unwrap();
            counts_tokens(node, |_| Some(rank))
        };
        for (node, rank) in [
            ("com.microsoft.GroupQueryAttention (x, x, x)", 2),
            ("com.microsoft.Attention (x, x, x, m)", 1),
            ("com.microsoft.MultiHeadAttention (x, x, x, x, m)", 1),
            ("com.microsoft.QAttention (x, x, x, x, x, m)", 1),
            ("Attention (x, x, x, x, x, x, m)", 1),
        ] {
            assert!(counts(node, rank), "{node}");
        }
        for (node, rank) in [
            ("com.microsoft.Attention (x, x, x, m)", 2),
            ("com.microsoft.Attention (x, x, x)", 1),
            ("com.microsoft.MultiHeadAttention (x, x, x, x, m)", 2),
            ("com.microsoft.MultiHeadAttention (x, x, x)", 1),
            ("com.microsoft.QAttention (x, x, x, x, x, m)", 2),
            ("Attention (x, x, x, m)", 1),
            ("Softmax (x)", 1),
        ] {
            assert!(!counts(node, rank), "{node} of rank {rank}");
        }
    }
}
