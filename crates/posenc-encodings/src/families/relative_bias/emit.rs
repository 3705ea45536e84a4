//! The nodes that look up a bias by a clipped distance.

use posenc_ir::{Emitter, ValueId};

use crate::families::shaw;
use crate::opset::Opset;

/// The biases `[query, key, heads..]` of distances, key − query, `[query, key]`, from a table
/// `[2k + 1, heads..]`; `None` for a k beyond all integers.
pub fn emit(
    out: &mut Emitter<'_>,
    opset: Opset,
    distances: ValueId,
    k: usize,
    table: ValueId,
) -> Option<ValueId> {
    let rows = shaw::emit::rows(out, opset, distances, i64::try_from(k).ok()?);
    Some(out.op("Gather", &[table, rows]))
}
