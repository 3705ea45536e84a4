//! The nodes that look up a bias by the bucket of a distance.

use posenc_ir::{Emitter, ValueId};

use super::T5Bias;
use crate::families::shaw;
use crate::opset::Opset;

impl T5Bias {
    /// The biases `[query, key, heads..]` of distances, key − query, `[query, key]`, from a table
    /// `[buckets, heads..]`; `None` without a maximum distance.
    pub fn emit(
        &self,
        out: &mut Emitter<'_>,
        opset: Opset,
        distances: ValueId,
        table: ValueId,
    ) -> Option<ValueId> {
        let max = i64::try_from(self.max_distance?).ok()?;
        // Distances from here on share a bucket, on either side.
        let is_last = |d: i64| self.bucket(d) == self.bucket(d.signum() * max);
        // Buckets never fall with the distance.
        let first = |sign: i64| {
            let (mut before, mut from) = (0, max);
            while from - before > 1 {
                let middle = before + (from - before) / 2;
                match is_last(sign * middle) {
                    true => from = middle,
                    false => before = middle,
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
        let buckets = out.op("Gather", &[buckets, rows]);
        Some(out.op("Gather", &[table, buckets]))
    }
}
