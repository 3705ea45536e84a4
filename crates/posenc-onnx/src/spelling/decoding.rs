//! ONNX Runtime's operators of attention for one new token after a cache.

use posenc_ir::{Attr, NodeId};

use super::draft::Draft;
use super::fused::{DOMAIN, fused};
use super::view::View;

/// `DecoderMaskedMultiHeadAttention`: `MultiHeadAttention`, whose one query sees all earlier keys.
pub(super) fn multi_head(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    // A beam picks its keys among those of all beams.
    let picks = node.input(8).is_some() || node.input(9).is_some();
    if node.domain() != DOMAIN || picks || node.output(3).is_some() {
        return None;
    }
    let is_shared = node.int("past_present_share_buffer").ok()? == Some(1);
    let has_length = node.input(7).is_some();
    if is_shared != has_length {
        return None;
    }
    let inputs = [0, 1, 2, 10, 3, 4, 5, 6, 7].map(|slot| node.input(slot));
    let floats = ["mask_filter_value", "scale"];
    // Without a cache, the keys are those of another sequence.
    let causal = [("unidirectional", Attr::Int(node.input(5).is_some().into()))];
    fused(
        draft,
        id,
        "MultiHeadAttention",
        &inputs,
        (&["num_heads"], &floats),
        &causal,
    )
}

/// `DecoderMaskedSelfAttention`: `Attention`, whose one query sees all earlier keys.
pub(super) fn projecting(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    let picks = node.input(7).is_some() || node.input(8).is_some();
    if node.domain() != DOMAIN || picks {
        return None;
    }
    let inputs = [0, 1, 2, 3, 4, 5, 6].map(|slot| node.input(slot));
    let ints = ["num_heads", "do_rotary", "past_present_share_buffer"];
    let floats = ["mask_filter_value", "scale"];
    let causal = [("unidirectional", Attr::Int(1))];
    fused(draft, id, "Attention", &inputs, (&ints, &floats), &causal)
}
