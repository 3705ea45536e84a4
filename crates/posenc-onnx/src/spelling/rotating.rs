//! ONNX Runtime's operators that rotate queries and keys themselves.

use posenc_encodings::families::rope::Rotary;
use posenc_encodings::laws::Rope;
use posenc_encodings::layout::Layout;
use posenc_encodings::rotation::{Rotation, Shape};
use posenc_ir::{Attr, DType, Emitter, Node, NodeId, Tensor, ValueId};

use super::draft::Draft;
use super::fused::DOMAIN;
use super::view::View;
use crate::graph::projecting::{projected, separated, widths};

/// The θ of the CUDA kernel, the only one that rotates; no attribute sets it.
const THETA: f64 = 10_000.0;

/// `Attention` with `do_rotary`: a projection, a rotation of queries and new keys in halves of the first
/// `rotary_embedding_dim` features, or of all, and `MultiHeadAttention`. Positions go on after the earlier keys.
pub(super) fn attention(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    let int = |name: &str| node.int(name).ok().flatten().unwrap_or(0);
    // In a shared buffer, the number of earlier keys is not that of its slots.
    let shares = int("past_present_share_buffer") != 0 || node.input(6).is_some();
    if int("do_rotary") != 1 || shares {
        return None;
    }
    // Of masks with one axis or four, `MultiHeadAttention` has other forms.
    let has_axes = |mask: ValueId| matches!(view.rank(mask), Some(2 | 3));
    if !node.input(3).is_none_or(has_axes) {
        return None;
    }
    let weights = view.sizes(node.input(1)?)?;
    let widths = widths(node, *weights.get(1)?)?;
    let heads = usize::try_from(int("num_heads")).ok().filter(|n| *n > 0)?;
    let head_dim = (widths[0] % heads == 0).then_some(widths[0] / heads)?;
    let rotary_dim = match usize::try_from(int("rotary_embedding_dim")).ok()? {
        0 => head_dim,
        given => given,
    };
    let rotary = Rotary {
        rope: Rope::new(THETA, rotary_dim, head_dim).ok()?,
        layout: Layout::Half,
    };
    let dtype = view.dtype(node.input(0)?)?;
    let opset = view.opset();
    let out = draft.emitter();
    let [query, key, value] = projected(out, opset, node, widths)?;
    let positions = positions(out, node)?;
    let waves = rotary.waves(out, opset, positions, 0, DType::F32);
    let waves = waves.map(|wave| {
        let wave = opset.unsqueeze(out, wave, &[1]);
        match dtype {
            DType::F32 => wave,
            _ => out.cast(wave, dtype),
        }
    });
    let [query, key] = [query, key].map(|x| {
        let apart = out.ints("heads", &[0, 0, heads as i64, head_dim as i64]);
        let apart = out.op("Reshape", &[x, apart]);
        let shape = Shape {
            rank: 4,
            feature: 3,
        };
        let rotated = rotary.rotate(out, opset, apart, shape, waves);
        let together = out.ints("hidden", &[0, 0, widths[0] as i64]);
        out.op("Reshape", &[rotated, together])
    });
    let replaced = separated(out, opset, id, [query, key, value], None);
    for (old, new) in replaced {
        draft.replace(old, new)?;
    }
    Some(())
}

/// The positions of the new tokens, in f32.
fn positions(out: &mut Emitter<'_>, node: &Node) -> Option<ValueId> {
    let scalar =
        |out: &mut Emitter<'_>, n: i64| out.constant("scalar", Tensor::from_i64(&[], &[n]));
    let length = |out: &mut Emitter<'_>, value: ValueId, axis: i64| {
        let shape = out.op("Shape", &[value]);
        let axis = scalar(out, axis);
        out.op_with("Gather", &[shape, axis], &[("axis", Attr::Int(0))])
    };
    let tokens = length(out, node.input(0)?, 1);
    let (first, end) = match node.input(4) {
        Some(past) => {
            let first = length(out, past, 3);
            (first, out.op("Add", &[first, tokens]))
        }
        None => (scalar(out, 0), tokens),
    };
    let step = scalar(out, 1);
    let range = out.op("Range", &[first, end, step]);
    Some(out.cast(range, DType::F32))
}

/// `GemmaRotaryEmbedding`: queries and keys times the cosines of angles `[batch, token, feature]`, and what was
/// turned of them times the sines.
pub(super) fn of_angles(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    if node.domain() != DOMAIN {
        return None;
    }
    let angles = node.input(0)?;
    let opset = view.opset();
    for (output, [whole, turned]) in [[1, 2], [3, 4]].into_iter().enumerate() {
        let [whole, turned] = [node.input(whole)?, node.input(turned)?];
        let dtype = view.dtype(whole)?;
        let Some(old) = node.output(output) else {
            continue;
        };
        let out = draft.emitter();
        let [whole, turned] = [("Cos", whole), ("Sin", turned)].map(|(wave, x)| {
            let wave = out.op(wave, &[angles]);
            let wave = out.cast(wave, dtype);
            let wave = opset.unsqueeze(out, wave, &[1]);
            out.op("Mul", &[x, wave])
        });
        let sum = out.op("Add", &[whole, turned]);
        draft.replace(old, sum)?;
    }
    Some(())
}
