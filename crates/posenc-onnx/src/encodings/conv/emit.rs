//! Nodes that add a depthwise convolution along the tokens to its input.

use posenc_ir::{Attr, DType, Emitter, ValueId};

use crate::opset::Opset;

/// A value `[.., token, .., channel]` with one more axis, and where its axes stand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axes {
    pub(crate) batch: usize,
    pub(crate) channel: usize,
    pub(crate) token: usize,
}

/// `x + gelu(conv(x))` of weights `[channels, 1, kernel]` and a bias `[channels]`, as many tokens
/// as go in: of an even kernel one tap more stands before the token than behind it.
pub(crate) fn added(
    out: &mut Emitter<'_>,
    opset: Opset,
    x: ValueId,
    axes: Axes,
    [weight, bias]: [ValueId; 2],
    [channels, kernel]: [usize; 2],
    dtype: DType,
) -> ValueId {
    let perm = [axes.batch, axes.channel, axes.token];
    let mut back = [0; 3];
    for (place, axis) in perm.iter().enumerate() {
        back[*axis] = place;
    }
    let is_moved = perm != [0, 1, 2];
    let transpose = |out: &mut Emitter<'_>, x: ValueId, perm: [usize; 3]| {
        if !is_moved {
            return x;
        }
        let perm = perm.iter().map(|a| *a as i64).collect();
        out.op_with("Transpose", &[x], &[("perm", Attr::Ints(perm))])
    };
    let y = transpose(out, x, perm);
    let pads = vec![kernel as i64 / 2, (kernel as i64 - 1) / 2];
    let attrs = [
        ("group", Attr::Int(channels as i64)),
        ("kernel_shape", Attr::Ints(vec![kernel as i64])),
        ("pads", Attr::Ints(pads)),
    ];
    let y = out.op_with("Conv", &[y, weight, bias], &attrs);
    let y = opset.gelu(out, y, dtype);
    let y = transpose(out, y, back);
    out.op("Add", &[x, y])
}
