//! Whether every row of a table follows the law that its first rows were read by.

use posenc_ir::eval::Trace;
use posenc_ir::{DType, Graph};

use super::source::{Table, Wave};
use posenc_encodings::families::rope::Rope;

/// Differences between a row and its law that rounding does not explain, as a share of the largest.
const TOLERANCE: f64 = 1e-2;

/// The most that rounding may explain where numbers are still compared.
const COARSE: f64 = 0.3;

/// Rows that frequencies were read from, at least.
const READ: usize = 8;

/// The first row of a table that is not what the frequencies of a rotation give for its position; `None` where there
/// is none, and where the numbers are not at hand.
pub(crate) fn stray(graph: &Graph, trace: &Trace, table: &Table, rope: &Rope) -> Option<usize> {
    let computed = || Some(trace.get(table.root).to_f64()?.iter().copied().collect());
    let numbers = match graph.constant(table.root) {
        Some(stored) => stored.to_f64s(),
        None => computed(),
    };
    let dtype = graph.dtype(table.root).unwrap_or(DType::F32);
    stray_in(table, &numbers?, dtype, rope)
}

/// The same of a table with these elements.
fn stray_in(table: &Table, numbers: &[f64], dtype: DType, rope: &Rope) -> Option<usize> {
    let eps = match dtype {
        DType::F16 => 1e-3,
        DType::BF16 => 8e-3,
        _ => 1e-6,
    };
    let inner: usize = table.dims[table.axis + 1..].iter().product();
    let rows = table.dims[table.axis];
    let position = |row: usize| (table.first + row as i64) as f64;
    // The number of a row and a column, and what its law gives.
    let pair = |row: usize, at: usize| {
        let column = table.columns[at];
        let (o, i) = (at / inner, at % inner);
        let frequency = rope.inv_freq.get(column.pair).copied().unwrap_or(0.0);
        let angle = position(row) * frequency;
        let wave = match column.wave {
            Wave::Cos => angle.cos(),
            Wave::Sin => angle.sin(),
        };
        (numbers[(o * rows + row) * inner + i], column.sign * wave)
    };
    let columns = 0..table.columns.len();
    // The factor may be in the table or behind it.
    let (mut both, mut square) = (0.0, 0.0);
    for row in 0..rows.min(READ) {
        for (got, law) in columns.clone().map(|at| pair(row, at)) {
            both += got * law;
            square += law * law;
        }
    }
    let factor = both / square;
    let strays = |row: &usize| {
        let off = TOLERANCE + 4.0 * eps * (1.0 + position(*row).abs() / READ as f64);
        let is_near = |(got, law): (f64, f64)| (got - factor * law).abs() <= off * factor.abs();
        off <= COARSE && !columns.clone().all(|at| is_near(pair(*row, at)))
    };
    (0..rows).find(strays)
}

#[cfg(test)]
mod tests {
    use posenc_ir::{Graph, Model};

    use super::*;
    use crate::detect::rotary::source::Column;

    const ROWS: usize = 40;

    fn rope() -> Rope {
        Rope {
            inv_freq: vec![1.0, 0.1],
            attention_factor: 1.0,
            pairs: vec![(0, 2), (1, 3)],
            layout: None,
            rotary_dim: 4,
            head_dim: 4,
        }
    }

    /// cos and sin of both pairs, in columns of one table, times 1.2.
    fn table(graph: &Graph) -> (Table, Vec<f64>) {
        let columns: Vec<Column> = [Wave::Cos, Wave::Sin]
            .into_iter()
            .flat_map(|wave| [0, 1].map(|pair| (pair, wave)))
            .map(|(pair, wave)| Column {
                pair,
                wave,
                sign: 1.0,
            })
            .collect();
        let f = rope().inv_freq;
        let number = |row: usize, c: &Column| match c.wave {
            Wave::Cos => 1.2 * (row as f64 * f[c.pair]).cos(),
            Wave::Sin => 1.2 * (row as f64 * f[c.pair]).sin(),
        };
        let numbers = (0..ROWS).flat_map(|row| columns.iter().map(move |c| number(row, c)));
        let numbers = numbers.collect();
        let table = Table {
            root: graph.scope(graph.main()).inputs()[0],
            dims: vec![ROWS, columns.len()],
            axis: 0,
            first: 0,
            columns,
            positions: None,
            cone: Default::default(),
        };
        (table, numbers)
    }

    #[test]
    fn a_row_that_follows_another_law_is_found() {
        let model =
            Model::parse("<ir_version: 8, opset_import: [\"\" : 17]> g (float x) => (x) {}");
        let model = model.unwrap();
        let (table, numbers) = table(model.graph());
        let stray = |numbers: &[f64], dtype| stray_in(&table, numbers, dtype, &rope());
        assert_eq!(stray(&numbers, DType::F32), None, "control");
        let mut odd = numbers.clone();
        odd[30 * 4 + 1] += 0.1;
        assert_eq!(stray(&odd, DType::F32), Some(30));
        // Rows after this one are those before it.
        let mut late = numbers.clone();
        late.copy_within(19 * 4..39 * 4, 20 * 4);
        assert_eq!(stray(&late, DType::F32), Some(20));
        assert_eq!(stray(&late, DType::F16), Some(20));
        let mut none = numbers.clone();
        none[35 * 4] = f64::NAN;
        assert_eq!(stray(&none, DType::F32), Some(35));
    }
}
