//! Nodes that pick the rows of a table.

use posenc_ir::{Attr, Emitter, ValueId};

/// Which rows of a table are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// All of them.
    All,
    /// From the first on, as many as a list of one number says.
    First(ValueId),
    /// Those that an index names.
    At(ValueId),
}

/// Rows of a table `[rows, dim]`: `[token, dim]`, with the axes of the index for those of tokens.
pub fn rows(out: &mut Emitter<'_>, table: ValueId, pick: Pick) -> ValueId {
    match pick {
        Pick::All => table,
        Pick::First(count) => {
            let zero = out.ints("zero", &[0]);
            out.op("Slice", &[table, zero, count, zero])
        }
        Pick::At(index) => out.op_with("Gather", &[table, index], &[("axis", Attr::Int(0))]),
    }
}

#[cfg(test)]
mod tests {
    use posenc_ir::Tensor;

    use super::*;
    use crate::emitted::emitted;
    use crate::families::learned::Learned;

    const ROWS: usize = 6;

    #[test]
    fn the_rows_that_are_picked_are_those_of_the_positions() {
        let cells: Vec<f32> = (0..2 * ROWS).map(|i| i as f32).collect();
        let table = Tensor::from_f32(&[ROWS, 2], &cells);
        let list = |values: &[i64]| Tensor::from_i64(&[values.len()], values);
        type Of = fn(ValueId) -> Pick;
        let cases: [(Of, Tensor, &[i64]); 3] = [
            (|_| Pick::All, list(&[0]), &[0, 1, 2, 3, 4, 5]),
            (Pick::First, list(&[4]), &[0, 1, 2, 3]),
            (Pick::At, list(&[3, 4, 5]), &[3, 4, 5]),
        ];
        for (pick, index, want) in cases {
            let given = [table.clone(), index];
            let got = emitted(17, &given, |out, given| rows(out, given[0], pick(given[1])));
            let read: Vec<i64> = got.outer_iter().map(|row| row[0] as i64 / 2).collect();
            assert_eq!(read, want);
            let past = usize::try_from(want[0]).unwrap();
            let found = Learned::identify([ROWS, 2], &read, past, 0, None).unwrap();
            assert_eq!((found.offset, found.max_positions), (0, ROWS));
        }
    }
}
