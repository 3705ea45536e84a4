//! The nodes that look up a bias by a clipped distance.

use ndarray::ArrayD;
use posenc_ir::Emitter;

use super::RelativeBias;
use crate::bias::emit::table;
use crate::bias::{BiasPorts, Emitted};
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
        let table = table(out, ports, "relative_bias", tensors.first()?);
        let distances = ports.distances(out);
        let rows = shaw::emit::rows(out, ports.opset(), distances, clip);
        Some(Emitted::picked(out, table, rows))
    }
}
