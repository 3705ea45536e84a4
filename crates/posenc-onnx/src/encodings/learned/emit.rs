//! Nodes that pick the rows of a table.

use posenc_ir::{Attr, Emitter, ValueId};

/// Which rows of a table are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// All of them.
    All,
    /// From the first on, as many as a list of one number says.
    First(ValueId),
    /// Those that an index names.
    At(ValueId),
}

/// Rows of a table `[rows, dim]`: `[token, dim]`, with the axes of the index for those of tokens.
pub(crate) fn rows(out: &mut Emitter<'_>, table: ValueId, pick: Pick) -> ValueId {
    match pick {
        Pick::All => table,
        Pick::First(count) => {
            let zero = out.ints("zero", &[0]);
            out.op("Slice", &[table, zero, count, zero])
        }
        Pick::At(index) => out.op_with("Gather", &[table, index], &[("axis", Attr::Int(0))]),
    }
}
