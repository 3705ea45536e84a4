//! The nodes that look up a bias by the bucket of a distance.

use ndarray::ArrayD;
use posenc_ir::Emitter;

use super::T5Bias;
use crate::bias::emit::table;
use crate::bias::{BiasPorts, Emitted};
use crate::families::shaw;

impl T5Bias {
    /// A table of the bucket of each near distance, and the table of biases by bucket.
    pub(super) fn nodes(
        &self,
        out: &mut Emitter<'_>,
        ports: &mut dyn BiasPorts,
        tensors: &[ArrayD<f64>],
    ) -> Option<Emitted> {
        let max = i64::try_from(self.max_distance?).ok()?;
        let table = table(out, ports, "relative_attention_bias", tensors.first()?);
        let distances = ports.distances(out);
        // Distances from here on share a bucket, on either side.
        let is_last = |d: i64| self.bucket(d) == self.bucket(d.signum() * max);
        // Buckets never fall with the distance.
        let first = |sign: i64| {
            let (mut before, mut from) = (0, max);
            while from - before > 1 {
                let middle = before + (from - before) / 2;
                if is_last(sign * middle) {
                    from = middle;
                } else {
                    before = middle;
                }
            }
            from
        };
        let bound = first(-1).max(first(1));
        let buckets: Option<Vec<i64>> = (-bound..=bound)
            .map(|d| i64::try_from(self.bucket(d)?).ok())
            .collect();
        let buckets = out.ints("buckets", &buckets?);
        let rows = shaw::emit::rows(out, ports.opset(), distances, bound);
        let buckets = out.op("Gather", &[buckets, rows]);
        Some(Emitted::picked(out, table, buckets))
    }
}
