//! Positions of new tokens, from the last index of each sequence.

use posenc_ir::{DType, Emitter, Tensor, ValueId};

use super::length::{Length, Lengths, range};
use crate::detect::context::Context;

/// Positions `[batch, token]` of new tokens that end at the last index of each sequence, or start at 0 if a
/// sequence is shorter.
pub(crate) fn positions_up_to(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    lengths: &mut Lengths,
    last: ValueId,
    length: Length,
) -> ValueId {
    let scopes = [context.graph().value(last).scope(), length.scope(context)];
    let scope = context.inner(scopes);
    out.set_scope(scope);
    let last = out.cast(last, DType::I64);
    let column = out.ints("column", &[-1, 1]);
    let last = out.op("Reshape", &[last, column]);
    let (indices, others) = match length {
        Length::Known(n) => {
            let others = Tensor::from_i64(&[], &[n as i64 - 1]);
            let indices = out.constant("positions", range(n));
            (indices, out.constant("length", others))
        }
        Length::Of(_) => {
            let new = lengths.scalar(out, context, length);
            out.set_scope(scope);
            let one = out.constant("one", Tensor::from_i64(&[], &[1]));
            let zero = out.constant("zero", Tensor::from_i64(&[], &[0]));
            let indices = out.op("Range", &[zero, new, one]);
            (indices, out.op("Sub", &[new, one]))
        }
    };
    let first = out.op("Sub", &[last, others]);
    let first = context.opset().at_least_zero(out, first, DType::I64);
    out.op("Add", &[first, indices])
}
