//! Biases of the scores that content scales.

use posenc_ir::{Attr, NodeId};

use super::draft::Draft;
use super::fused::DOMAIN;
use super::view::View;

/// `GatedRelativePositionBias` of WavLM: a bias times a number for each head and query, which comes of two
/// gates `u` and `r` of the query, `u · (r · a - 1) + 2`.
pub(super) fn relative(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    // Tokens without their padding are not `[batch, token, features]`.
    if node.domain() != DOMAIN || node.input(6).is_some() || view.rank(node.input(0)?) != Some(3) {
        return None;
    }
    let [query, query_bias, relative, weight, bias, a] = {
        let inputs: Vec<_> = (0..6).map(|slot| node.input(slot)).collect::<Option<_>>()?;
        <[_; 6]>::try_from(inputs).ok()?
    };
    let heads = node.int("num_heads").ok()?.filter(|heads| *heads > 0)?;
    let &[_, outputs] = view.sizes(weight)?.as_slice() else {
        return None;
    };
    let of_gate = i64::try_from(outputs / 2)
        .ok()
        .filter(|_| outputs.is_multiple_of(2))?;
    let dtype = view.dtype(query)?;
    let opset = view.opset();
    let query = draft.op("Add", &[query, query_bias], &[]);
    let by_head = draft.ints(&[0, 0, heads, -1]);
    let query = draft.op("Reshape", &[query, by_head], &[]);
    let query = draft.transpose(query, &[0, 2, 1, 3]);
    let gates = draft.op("MatMul", &[query, weight], &[]);
    let gates = draft.op("Add", &[gates, bias], &[]);
    let by_gate = draft.ints(&[0, 0, 0, 2, of_gate]);
    let gates = draft.op("Reshape", &[gates, by_gate], &[]);
    let last = draft.ints(&[-1]);
    let gates = draft.op("ReduceSum", &[gates, last], &[("keepdims", Attr::Int(0))]);
    let gates = draft.op("Sigmoid", &[gates], &[]);
    let out = draft.emitter();
    let [u, r] = opset.split(out, gates, 3, &[1, 1]).try_into().ok()?;
    let [one, two] = [1.0, 2.0].map(|x| out.scalar("scalar", dtype, x));
    let r = draft.op("Mul", &[r, a], &[]);
    let r = draft.op("Sub", &[r, one], &[]);
    let gate = draft.op("Mul", &[u, r], &[]);
    let gate = draft.op("Add", &[gate, two], &[]);
    let gated = draft.op("Mul", &[gate, relative], &[]);
    draft.replace(node.output(0)?, gated)
}
