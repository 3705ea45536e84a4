//! Nodes that compute sines and cosines from positions.

use posenc_ir::{Attr, DType, Emitter, Tensor, ValueId};

use super::Sinusoidal;
use crate::layout::Layout;
use crate::opset::Opset;

impl Sinusoidal {
    /// The code of positions `[.., token]` in floats of type `dtype`, f32 or f64: `[.., token, dim]`.
    /// `lead` is the number of axes before the tokens. Factor, offset, amplitude and the order of
    /// sines and cosines are the plain ones.
    pub fn emit(
        &self,
        out: &mut Emitter<'_>,
        opset: Opset,
        positions: ValueId,
        lead: usize,
        dtype: DType,
    ) -> ValueId {
        let pairs = self.dim / 2;
        let lone = self.dim % 2;
        let frequency = |i: usize| self.base.powf(-(i as f64) / self.denominator.of(self.dim));
        let frequencies = |count: usize| -> Vec<f64> { (0..count).map(frequency).collect() };
        let token = lead as i64;
        match self.layout {
            Layout::Half => {
                let column = opset.unsqueeze(out, positions, &[token + 1]);
                let [sin, cos] = waves(out, column, &[pairs], &frequencies(pairs), dtype);
                let mut parts = vec![sin, cos];
                if lone > 0 {
                    // A row of odd width ends in zero.
                    let zero = out.scalar("zero", dtype, 0.0);
                    parts.push(out.op("Mul", &[column, zero]));
                }
                out.op_with("Concat", &parts, &[("axis", Attr::Int(token + 1))])
            }
            Layout::Interleaved => {
                let count = pairs + lone;
                let column = opset.unsqueeze(out, positions, &[token + 1, token + 2]);
                let [sin, cos] = waves(out, column, &[count, 1], &frequencies(count), dtype);
                let both = out.op_with("Concat", &[sin, cos], &[("axis", Attr::Int(token + 2))]);
                let mut dims = vec![0; lead + 1];
                dims.push(-1);
                let dims = out.ints("dims", &dims);
                let rows = out.op("Reshape", &[both, dims]);
                if lone == 0 {
                    return rows;
                }
                // And in a lone sine, where sines and cosines alternate.
                let [first, end, axis] =
                    [0, self.dim as i64, token + 1].map(|n| out.ints("cut", &[n]));
                out.op("Slice", &[rows, first, end, axis])
            }
        }
    }
}

/// Sines and cosines of positions in a column, times frequencies.
fn waves(
    out: &mut Emitter<'_>,
    column: ValueId,
    dims: &[usize],
    frequencies: &[f64],
    dtype: DType,
) -> [ValueId; 2] {
    let frequencies = out.constant("frequencies", Tensor::from_f64(dtype, dims, frequencies));
    let angles = out.op("Mul", &[column, frequencies]);
    ["Sin", "Cos"].map(|op| out.op(op, &[angles]))
}

#[cfg(test)]
mod tests {
    use ndarray::Ix2;

    use super::super::{Denominator, Precision, identify};
    use super::*;
    use crate::emitted::{apart, emitted};

    fn code(layout: Layout, dim: usize) -> Sinusoidal {
        Sinusoidal {
            dim,
            layout,
            cosines_first: false,
            denominator: Denominator::Pairs,
            base: 10_000.0,
            factor: 1.0,
            amplitude: 1.0,
            max_positions: None,
            offset: 0,
            image: None,
        }
    }

    #[test]
    fn rows_are_those_of_the_formula_and_are_read_back() {
        for layout in [Layout::Half, Layout::Interleaved] {
            for dim in [2, 3, 7, 8, 24, 33] {
                let code = code(layout, dim);
                let positions: Vec<f64> = (0..40).map(f64::from).collect();
                let given = [Tensor::from_f64(DType::F64, &[40], &positions)];
                let got = emitted(17, &given, |out, given| {
                    code.emit(out, Opset(17), given[0], 0, DType::F64)
                });
                assert_eq!(got.shape(), [40, dim], "{layout}");
                let far = apart(&got, &code.reference(&positions));
                assert!(far < 1e-12, "{layout} {dim}: {far}");
                if dim < 7 {
                    continue;
                }
                let rows = got.into_dimensionality::<Ix2>().unwrap();
                let read = identify(&positions, rows.view(), Precision::of(Some(DType::F32)));
                let (read, _) = read.unwrap();
                assert_eq!((read.layout, read.denominator), (layout, code.denominator));
                assert!((read.base - code.base).abs() < 1e-3 * code.base, "{dim}");
            }
        }
    }

    #[test]
    fn positions_of_several_sequences_give_rows_of_each() {
        for layout in [Layout::Half, Layout::Interleaved] {
            let code = code(layout, 8);
            let positions = [0.0, 1.0, 2.0, 7.0, 8.0, 9.0];
            let given = [Tensor::from_f64(DType::F64, &[2, 3], &positions)];
            for opset in [11, 13, 20] {
                let got = emitted(opset, &given, |out, given| {
                    code.emit(out, Opset(opset), given[0], 1, DType::F64)
                });
                assert_eq!(got.shape(), [2, 3, 8]);
                let far = apart(&got, &code.reference(&positions));
                assert!(far < 1e-12, "{layout}: {far}");
            }
        }
    }
}
