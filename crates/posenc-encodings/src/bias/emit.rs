//! Nodes that biases of several families have in common.

use ndarray::ArrayD;
use posenc_ir::{DType, Emitter, Tensor, ValueId};

use super::{BiasPorts, Emitted, Order};

/// Numbers of a type that holds integers beyond 2048, for what half precision does not.
pub fn exact(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F64,
        _ => DType::F32,
    }
}

/// A number for each head as a constant of the [`exact`] type, `[heads.., (1,) 1, 1]`.
pub(crate) fn per_head(
    out: &mut Emitter<'_>,
    ports: &dyn BiasPorts,
    label: &str,
    values: &[f64],
) -> ValueId {
    let sequences = if ports.is_by_sequence() {
        &[1][..]
    } else {
        &[]
    };
    let dims = [ports.heads(), sequences, &[1, 1]].concat();
    out.constant(label, Tensor::from_f64(exact(ports.dtype()), &dims, values))
}

/// A learned table as a constant of the type of the scores, `[row, heads..]`.
pub(crate) fn table(
    out: &mut Emitter<'_>,
    ports: &mut dyn BiasPorts,
    label: &str,
    numbers: &ArrayD<f64>,
) -> ValueId {
    let dims = [&numbers.shape()[..1], ports.heads()].concat();
    let values: Vec<f64> = numbers.iter().copied().collect();
    let table = Tensor::from_f64(ports.dtype(), &dims, &values);
    ports.constant(out, label, table)
}

impl Emitted {
    /// The rows of a table that are picked for each pair.
    pub(crate) fn picked(out: &mut Emitter<'_>, table: ValueId, rows: ValueId) -> Self {
        Self {
            value: out.op("Gather", &[table, rows]),
            order: Order::HeadsLast,
        }
    }

    /// What was computed in the [`exact`] type, as the type of the scores.
    pub(crate) fn rounded(
        out: &mut Emitter<'_>,
        ports: &dyn BiasPorts,
        value: ValueId,
        order: Order,
    ) -> Self {
        let dtype = ports.dtype();
        let value = if exact(dtype) == dtype {
            value
        } else {
            out.cast(value, dtype)
        };
        Self { value, order }
    }
}
