//! Emits nodes that select or compute frequencies while the graph runs.

use posenc_ir::{Attr, DType, Emitter, Tensor, ValueId};

use posenc_encodings::laws::{Dynamic, Rope};

/// The largest position, as a scalar of the type of the positions.
pub(crate) fn largest(out: &mut Emitter<'_>, positions: ValueId) -> ValueId {
    out.op_with("ReduceMax", &[positions], &[("keepdims", Attr::Int(0))])
}

/// Whether the length, the largest position plus one, is above `original`: a bool scalar.
pub(crate) fn is_longer(
    out: &mut Emitter<'_>,
    largest: ValueId,
    dtype: DType,
    original: usize,
) -> ValueId {
    let bound = out.constant("bound", Tensor::from_f64(dtype, &[], &[original as f64]));
    let within = out.op("Less", &[largest, bound]);
    out.op("Not", &[within])
}

/// Dynamic NTK: `1 / θ'^e` with `θ' = θ · (s·L/L_max − (s − 1))^(d/(d−2))`, in f32. `exponents`
/// contains `e = 2i/d` for each element of the result and has its shape; `reciprocal` omits the
/// division.
pub(crate) fn grown(
    out: &mut Emitter<'_>,
    largest: ValueId,
    dynamic: &Dynamic,
    rope: &Rope,
    exponents: Tensor,
    reciprocal: bool,
) -> ValueId {
    let f32 = DType::F32;
    let largest = out.cast(largest, f32);
    let one = out.scalar("one", f32, 1.0);
    let length = out.op("Add", &[largest, one]);
    let factor = out.scalar("factor", f32, dynamic.factor);
    let stretched = out.op("Mul", &[factor, length]);
    let original = out.scalar("original_length", f32, dynamic.max_position as f64);
    let ratio = out.op("Div", &[stretched, original]);
    let rest = out.scalar("factor_minus_one", f32, dynamic.factor - 1.0);
    let growth = out.op("Sub", &[ratio, rest]);
    // Below the original length the result is not used, but it must not be NaN.
    let growth = out.op("Max", &[growth, one]);
    let exponent = out.scalar("exponent", f32, dynamic.exponent(rope));
    let growth = out.op("Pow", &[growth, exponent]);
    let theta = out.scalar("theta", f32, rope.theta);
    let base = out.op("Mul", &[theta, growth]);
    let exponents = out.constant("exponents", exponents);
    let timescale = out.op("Pow", &[base, exponents]);
    if reciprocal {
        timescale
    } else {
        out.op("Reciprocal", &[timescale])
    }
}

/// The positions of the rows of a table as f32 `[rows, 1]`, from `first` to the largest.
pub(crate) fn rows(out: &mut Emitter<'_>, largest: ValueId, first: i64) -> ValueId {
    let largest = out.cast(largest, DType::I64);
    let first = out.constant("first", Tensor::from_i64(&[], &[first]));
    let step = out.constant("step", Tensor::from_i64(&[], &[1]));
    let end = out.op("Add", &[largest, step]);
    let rows = out.op("Range", &[first, end, step]);
    let rows = out.cast(rows, DType::F32);
    let column = out.ints("column", &[-1, 1]);
    out.op("Reshape", &[rows, column])
}
