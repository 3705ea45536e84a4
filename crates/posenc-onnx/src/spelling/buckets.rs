//! The bias of T5 as one operator.

use posenc_encodings::families::t5_bias::T5Bias;
use posenc_ir::{Attr, NodeId, Tensor};

use super::draft::Draft;
use super::fused::DOMAIN;
use super::view::View;

/// The maximum distance where the attribute is left out.
const FAR: i64 = 128;

/// `RelativePositionBias`: rows of its table by the bucket of each distance.
pub(super) fn relative(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    if node.domain() != DOMAIN {
        return None;
    }
    let [table, queries, keys] = [node.input(0)?, node.input(1)?, node.input(2)?];
    let &[num_buckets, heads] = view.sizes(table)?.as_slice() else {
        return None;
    };
    let max_distance = node.int("max_distance").ok()?.unwrap_or(FAR);
    let bias = T5Bias {
        num_buckets,
        max_distance: Some(usize::try_from(max_distance).ok()?),
        max_distance_range: None,
        bidirectional: node.int("is_bidirectional").ok()?.unwrap_or(0) != 0,
        heads,
        factor: 1,
    };
    let by_head = [heads, num_buckets].map(|n| i64::try_from(n).ok());
    let [Some(heads), Some(rows)] = by_head else {
        return None;
    };
    // The numbers of a head follow each other, against the dimensions of the table.
    let by_head = draft.ints(&[heads, rows]);
    let table = draft.op("Reshape", &[table, by_head], &[]);
    let opset = view.opset();
    let out = draft.emitter();
    let [zero, one] = [0, 1].map(|n| out.constant("scalar", Tensor::from_i64(&[], &[n])));
    let [queries, keys] = [queries, keys].map(|count| {
        let count = out.op("Squeeze", &[count]);
        out.op("Range", &[zero, count, one])
    });
    let queries = opset.unsqueeze(out, queries, &[1]);
    let distances = out.op("Sub", &[keys, queries]);
    let buckets = bias.buckets(out, opset, distances)?;
    let picked = out.op_with("Gather", &[table, buckets], &[("axis", Attr::Int(1))]);
    let made = opset.unsqueeze(out, picked, &[0]);
    draft.replace(node.output(0)?, made)
}
