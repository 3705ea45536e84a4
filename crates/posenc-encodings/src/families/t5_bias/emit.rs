//! The nodes that look up a bias by the bucket of a distance.

use ndarray::ArrayD;
use posenc_ir::{Emitter, ValueId};

use super::T5Bias;
use crate::bias::emit::table;
use crate::bias::{BiasPorts, Emitted};
use crate::families::shaw;
use crate::opset::Opset;

impl T5Bias {
    /// A table of the bucket of each near distance, and the table of biases by bucket.
    pub(super) fn nodes(
        &self,
        out: &mut Emitter<'_>,
        ports: &mut dyn BiasPorts,
        tensors: &[ArrayD<f64>],
    ) -> Option<Emitted> {
        let tensor = tensors.first().filter(|_| self.max_distance.is_some())?;
        let table = table(out, ports, "relative_attention_bias", tensor);
        let (distances, opset) = (ports.distances(out), ports.opset());
        let buckets = self.buckets(out, opset, distances)?;
        Some(Emitted::picked(out, table, buckets))
    }

    /// The bucket of each of these distances, key − query, both int64; `None` without a maximum distance.
    pub fn buckets(
        &self,
        out: &mut Emitter<'_>,
        opset: Opset,
        distances: ValueId,
    ) -> Option<ValueId> {
        let max = i64::try_from(self.max_distance?).ok()?;
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
        let rows = shaw::emit::rows(out, opset, distances, bound);
        Some(out.op("Gather", &[buckets, rows]))
    }
}
