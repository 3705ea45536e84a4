//! The nodes that meet content with vectors by clipped distance.

use posenc_ir::{Attr, DType, Emitter, Tensor, ValueId};

use crate::opset::Opset;

/// `clip(distance, −k, k) + k`: the row of a distance in a table of `2k + 1`.
pub fn rows(out: &mut Emitter<'_>, opset: Opset, distances: ValueId, k: i64) -> ValueId {
    let [low, high] = [-k, k].map(|n| out.constant("clip", Tensor::from_i64(&[], &[n])));
    let near = opset.clip(out, distances, low, high);
    out.op("Add", &[near, high])
}

/// The products of vectors and content, summed over what the result does not name: each with a
/// letter for every axis. ONNX Runtime is faster where the vectors stand first. All have this type;
/// in bfloat16, which `Einsum` does not have, they are multiplied in single precision.
pub fn meet(
    out: &mut Emitter<'_>,
    vectors: (ValueId, &[char]),
    content: (ValueId, &[char]),
    result: &[char],
    dtype: DType,
) -> ValueId {
    let text = |letters: &[char]| letters.iter().collect::<String>();
    let (a, b, c) = (text(vectors.1), text(content.1), text(result));
    let equation = [("equation", Attr::Str(format!("{a},{b}->{c}")))];
    if dtype != DType::BF16 {
        return out.op_with("Einsum", &[vectors.0, content.0], &equation);
    }
    let [vectors, content] = [vectors.0, content.0].map(|x| out.cast(x, DType::F32));
    let products = out.op_with("Einsum", &[vectors, content], &equation);
    out.cast(products, dtype)
}
