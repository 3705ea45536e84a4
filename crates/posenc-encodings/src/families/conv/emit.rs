//! Nodes that add a depthwise convolution along the tokens to its input.

use posenc_ir::{Attr, DType, Emitter, ValueId};

use crate::opset::Opset;

/// A value `[.., token, .., channel]` with one more axis, and where its axes stand.
#[derive(Clone, Copy, Debug)]
pub struct Axes {
    /// The axis of sequences.
    pub batch: usize,
    /// The axis of features.
    pub channel: usize,
    /// The axis of tokens.
    pub token: usize,
}

/// `x + gelu(conv(x))` of weights `[channels, 1, kernel]` and a bias `[channels]`, as many tokens
/// as go in: of an even kernel one tap more stands before the token than behind it. `x` has the
/// first type; weights and bias have the second, in which the convolution is computed.
pub fn added(
    out: &mut Emitter<'_>,
    opset: Opset,
    x: ValueId,
    axes: Axes,
    [weight, bias]: [ValueId; 2],
    [channels, kernel]: [usize; 2],
    [own, computed]: [DType; 2],
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
    let cast = |out: &mut Emitter<'_>, x: ValueId, to: DType| {
        if own == computed { x } else { out.cast(x, to) }
    };
    let y = cast(out, x, computed);
    let y = transpose(out, y, perm);
    let pads = vec![kernel as i64 / 2, (kernel as i64 - 1) / 2];
    let attrs = [
        ("group", Attr::Int(channels as i64)),
        ("kernel_shape", Attr::Ints(vec![kernel as i64])),
        ("pads", Attr::Ints(pads)),
    ];
    let y = out.op_with("Conv", &[y, weight, bias], &attrs);
    let y = opset.gelu(out, y, computed);
    let y = transpose(out, y, back);
    let y = cast(out, y, own);
    out.op("Add", &[x, y])
}

#[cfg(test)]
mod tests {
    use ndarray::{Array1, Array2, Array3, Axis};
    use posenc_ir::Tensor;
    use posenc_ir::eval::gelu_erf;

    use super::super::reference;
    use super::*;
    use crate::emitted::{apart, emitted};

    const CHANNELS: usize = 4;
    const TOKENS: usize = 6;

    #[test]
    fn what_is_added_is_the_convolution_of_the_formula() {
        for kernel in [1, 2, 3, 4, 7] {
            let x = Array2::from_shape_fn((CHANNELS, TOKENS), |(c, t)| {
                (1.7 * c as f64 + 0.9 * t as f64).sin()
            });
            let weight = Array3::from_shape_fn((CHANNELS, 1, kernel), |(c, _, k)| {
                (0.3 * c as f64 - 1.1 * k as f64).cos()
            });
            let bias = Array1::from_shape_fn(CHANNELS, |c| 0.1 * c as f64);
            let conv = reference(&x, &weight, &bias, kernel / 2);
            let want = &x + &conv.mapv(gelu_erf);
            let floats =
                |dims: &[usize], values: Vec<f64>| Tensor::from_f64(DType::F64, dims, &values);
            let numbers = [
                floats(&[CHANNELS, 1, kernel], weight.iter().copied().collect()),
                floats(&[CHANNELS], bias.to_vec()),
            ];
            // Sequences first, tokens first, and channels before tokens.
            for (axes, order) in [
                ([0, 2, 1], [1, 0]),
                ([1, 2, 0], [1, 0]),
                ([0, 1, 2], [0, 1]),
            ] {
                let [batch, channel, token] = axes;
                let of = |value: &Array2<f64>| {
                    value
                        .view()
                        .permuted_axes(order)
                        .insert_axis(Axis(batch))
                        .to_owned()
                };
                let x = of(&x);
                let given = floats(x.shape(), x.iter().copied().collect());
                let given = [given, numbers[0].clone(), numbers[1].clone()];
                for opset in [13, 20] {
                    let got = emitted(opset, &given, |out, given| {
                        let axes = Axes {
                            batch,
                            channel,
                            token,
                        };
                        let numbers = [given[1], given[2]];
                        let sizes = [CHANNELS, kernel];
                        added(
                            out,
                            Opset(opset),
                            given[0],
                            axes,
                            numbers,
                            sizes,
                            [DType::F64; 2],
                        )
                    });
                    assert_eq!(got.shape(), x.shape());
                    let far = apart(&got, &of(&want));
                    assert!(far < 1e-12, "{kernel} {axes:?} {opset}: {far}");
                }
            }
        }
    }
}
