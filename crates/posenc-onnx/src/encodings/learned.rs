//! A learned table: row p is added to the embedding of the token at position p.

use serde_json::json;

use crate::report::Params;

/// A learned table of positions.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    /// Positions that have a row, class and register rows included.
    pub max_positions: usize,
    /// Rows of the table.
    pub table_rows: usize,
    /// Width of a row.
    pub dim: usize,
    /// Reserved rows before that of position 0.
    pub offset: usize,
    /// Class and register rows, part of `max_positions`.
    pub prefix: usize,
    /// Rows and columns of the grid of patches.
    pub grid: Option<[usize; 2]>,
}

impl Learned {
    /// The parameters by the names of the report.
    pub fn params(&self) -> Params {
        let mut params = Params::new();
        params.insert("max_positions".into(), json!(self.max_positions));
        params.insert("table_rows".into(), json!(self.table_rows));
        params.insert("dim".into(), json!(self.dim));
        params.insert("offset".into(), json!(self.offset));
        params.insert("prefix".into(), json!(self.prefix));
        params.insert("grid".into(), json!(self.grid));
        params
    }
}
