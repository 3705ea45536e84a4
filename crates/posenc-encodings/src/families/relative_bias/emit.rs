//! The nodes that look up a bias by a clipped distance.

use ndarray::ArrayD;
use posenc_ir::{Emitter, Tensor};

use super::RelativeBias;
use crate::bias::{BiasPorts, Emitted, Order};
use crate::families::shaw;

impl RelativeBias {
    /// The row of each clipped distance; `None` for windows, and a clip beyond all integers.
    pub(super) fn nodes(
        &self,
        out: &mut Emitter<'_>,
        ports: &mut dyn BiasPorts,
        tensors: &[ArrayD<f64>],
    ) -> Option<Emitted> {
        let clip = i64::try_from(self.max_distance?).ok()?;
        let values: Vec<f64> = tensors.first()?.iter().copied().collect();
        let dims = [&[2 * self.max_distance? + 1], ports.heads()].concat();
        let table = Tensor::from_f64(ports.dtype(), &dims, &values);
        let table = ports.constant(out, "relative_bias", table);
        let distances = ports.distances(out);
        let rows = shaw::emit::rows(out, ports.opset(), distances, clip);
        Some(Emitted {
            value: out.op("Gather", &[table, rows]),
            order: Order::HeadsLast,
        })
    }
}
