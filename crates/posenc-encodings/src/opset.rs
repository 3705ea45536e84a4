//! Operators whose form depends on the version of ai.onnx.

use posenc_ir::{Attr, DType, Emitter, Tensor, ValueId};

/// The version of ai.onnx that a model imports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Opset(pub i64);

impl Opset {
    /// The first version with all the operators that are inserted.
    pub const OLDEST: Self = Self(11);

    /// From here on axes and sizes are inputs.
    const INPUTS: Self = Self(13);

    /// Inserts axes of length 1, which then have these indices.
    pub fn unsqueeze(self, out: &mut Emitter<'_>, x: ValueId, axes: &[i64]) -> ValueId {
        self.with_axes(out, "Unsqueeze", x, axes, &[])
    }

    /// Removes these axes, which have length 1.
    pub fn squeeze(self, out: &mut Emitter<'_>, x: ValueId, axes: &[i64]) -> ValueId {
        self.with_axes(out, "Squeeze", x, axes, &[])
    }

    /// The sum along axes, which are removed.
    pub fn sum(self, out: &mut Emitter<'_>, x: ValueId, axes: &[i64]) -> ValueId {
        self.with_axes(out, "ReduceSum", x, axes, &[("keepdims", Attr::Int(0))])
    }

    fn with_axes(
        self,
        out: &mut Emitter<'_>,
        op: &str,
        x: ValueId,
        axes: &[i64],
        attrs: &[(&str, Attr)],
    ) -> ValueId {
        if self < Self::INPUTS {
            let mut attrs = attrs.to_vec();
            attrs.push(("axes", Attr::Ints(axes.to_vec())));
            return out.op_with(op, &[x], &attrs);
        }
        let axes = out.ints("axes", axes);
        out.op_with(op, &[x, axes], attrs)
    }

    /// Parts of these sizes along an axis.
    pub fn split(
        self,
        out: &mut Emitter<'_>,
        x: ValueId,
        axis: usize,
        sizes: &[usize],
    ) -> Vec<ValueId> {
        let axis = ("axis", Attr::Int(axis as i64));
        let list: Vec<i64> = sizes.iter().map(|n| *n as i64).collect();
        if self < Self::INPUTS {
            let sizes = ("split", Attr::Ints(list.clone()));
            return out.node("", "Split", &[Some(x)], &[axis, sizes], list.len());
        }
        let sizes = out.ints("sizes", &list);
        out.node("", "Split", &[Some(x), Some(sizes)], &[axis], list.len())
    }

    /// Integers, none below 0.
    pub fn at_least_zero(self, out: &mut Emitter<'_>, x: ValueId, dtype: DType) -> ValueId {
        let zero = out.constant("zero", Tensor::from_f64(dtype, &[], &[0.0]));
        if self >= Self(12) {
            return out.op("Max", &[x, zero]);
        }
        let below = out.op("Less", &[x, zero]);
        out.op("Where", &[below, zero, x])
    }

    /// Integers, none below `low` or above `high`.
    pub fn clip(self, out: &mut Emitter<'_>, x: ValueId, low: ValueId, high: ValueId) -> ValueId {
        if self >= Self(12) {
            return out.op("Clip", &[x, low, high]);
        }
        let below = out.op("Less", &[x, low]);
        let x = out.op("Where", &[below, low, x]);
        let above = out.op("Greater", &[x, high]);
        out.op("Where", &[above, high, x])
    }

    /// `x · Φ(x)`, with the error function.
    pub fn gelu(self, out: &mut Emitter<'_>, x: ValueId, dtype: DType) -> ValueId {
        if self >= Self(20) {
            return out.op("Gelu", &[x]);
        }
        let root = out.scalar("root", dtype, std::f64::consts::SQRT_2);
        let one = out.scalar("one", dtype, 1.0);
        let half = out.scalar("half", dtype, 0.5);
        let scaled = out.op("Div", &[x, root]);
        let erf = out.op("Erf", &[scaled]);
        let above = out.op("Add", &[erf, one]);
        let twice = out.op("Mul", &[x, above]);
        out.op("Mul", &[twice, half])
    }
}
