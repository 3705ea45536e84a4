//! The nodes that look up a bias by a clipped distance.

use posenc_ir::{Emitter, ValueId};

use crate::encodings::shaw;

/// The biases `[query, key, heads..]` of distances, key − query, `[query, key]`, from a table
/// `[2k + 1, heads..]`.
pub(crate) fn emit(out: &mut Emitter<'_>, distances: ValueId, k: i64, table: ValueId) -> ValueId {
    let rows = shaw::emit::rows(out, distances, k);
    out.op("Gather", &[table, rows])
}
