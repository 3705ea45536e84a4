//! A learned table: row `offset + p` is added to the embedding of the token at position p,
//! `x[b, p, :] + table[offset + p, :]`, with x `[batch, sequence, dim]` and the table
//! `[rows, dim]`.
//!
//! Sources: Gehring et al., arXiv:1705.03122, section 3.1; Devlin et al., arXiv:1810.04805,
//! section 3; for patches of an image, row by row after a class row, Dosovitskiy et al.,
//! arXiv:2010.11929, section 3.1. Known variants: reserved rows before the first position (OPT
//! two, RoBERTa padding index + 1), class and register rows (ViT, DINOv2), a table on the grid
//! itself (SAM), a table that the graph resizes to the image (DINOv2, BEiT), and tables that
//! coordinates of the input pick from (LayoutLM, Pix2Struct).

pub mod emit;

use std::any::Any;

use ndarray::{Array2, ArrayD, ArrayView2, Axis, Ix2};
use serde_json::json;

use super::sinusoidal::Sinusoidal;
use crate::describe::Description;
use crate::encoding::{self, Common, GivenTensors, PlanError, Start};
use crate::family::{Entry, Family};
use crate::input_term::{InputTerm, Source};
use crate::miss::Miss;
use crate::params::Params;

/// What the family declares.
pub static FAMILY: Family = Family {
    word: "learned",
    about: "A learned table added to the input, one row per position",
    adds: "a table on the embeddings",
    params: &[],
    common: &[("max-length", "")],
    tensors: &[encoding::Learned {
        name: "position_embedding",
        shape: "[N, D]",
        about: "",
        slot: 0,
        shared: true,
    }],
    starts: [
        "zeros, as many rows as the old table or the shortest limit",
        "N(0, 0.02²) as BERT",
    ],
    learned: &[],
    describe,
    entry: Entry::input_term::<LearnedTerm>(true),
};

/// `rows 2 to 65 of 66, width 64`, or `17 rows: 1 prefix + 4 × 4 grid, width 64`.
fn describe(to: &mut Description<'_>) {
    let usable = to.count("max_positions");
    let (rows, offset) = (to.count("table_rows"), to.count("offset"));
    match (usable, offset.unwrap_or(0), rows) {
        (Some(usable), 0, rows) if rows.is_none_or(|rows| rows == usable) => {
            let parts = to.parts_of_rows();
            to.say(format!("{usable} rows{parts}"));
        }
        (Some(usable), offset, rows) if usable > 0 => {
            let last = offset + usable - 1;
            let of = rows.map_or_else(String::new, |rows| format!(" of {rows}"));
            let parts = to.parts_of_rows();
            to.say(format!("rows {offset} to {last}{of}{parts}"));
        }
        (_, _, Some(rows)) => {
            let parts = to.parts_of_rows();
            to.say(format!("a table of {rows} rows{parts}"));
        }
        _ => {}
    }
    to.width();
}

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

impl encoding::Encoding for Learned {
    fn word(&self) -> &'static str {
        FAMILY.word
    }

    fn params(&self) -> Params {
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

/// A table as a rewrite inserts it: row p at position p.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedTerm {
    /// Rows of the table.
    pub rows: usize,
    /// Their width, where a file gives the table.
    pub width: Option<usize>,
}

impl encoding::Encoding for LearnedTerm {
    fn word(&self) -> &'static str {
        FAMILY.word
    }

    fn params(&self) -> Params {
        let mut params = Params::new();
        params.insert("max_positions".into(), json!(self.rows));
        params.insert("table_rows".into(), json!(self.rows));
        params
    }
}

impl InputTerm for LearnedTerm {
    fn plan(common: &Common, tensors: &GivenTensors) -> Result<Self, PlanError> {
        let given = tensors.dims(FAMILY.tensors[0].name);
        let size = |axis: usize| given.and_then(|(_, dims)| dims.get(axis).copied());
        let rows = size(0).or(common.max_length);
        Ok(Self {
            rows: rows.ok_or(PlanError::Missing("max-length"))?,
            width: size(1),
        })
    }

    fn source(&self) -> Source {
        Source::Table(self.rows)
    }

    fn width(&self) -> Option<usize> {
        self.width
    }

    fn tensors(&self, dim: usize) -> Vec<Vec<usize>> {
        vec![vec![self.rows, dim]]
    }

    fn start(&self, _tensor: usize) -> Start {
        Start::normal(0.02)
    }

    fn reference(
        &self,
        tensors: &[ArrayD<f64>],
        _dim: usize,
        positions: &[usize],
    ) -> Option<Array2<f64>> {
        let table = tensors.first()?.view().into_dimensionality::<Ix2>().ok()?;
        let all = positions.iter().all(|row| *row < table.nrows());
        all.then(|| table.select(Axis(0), positions))
    }

    fn is_read_as(&self, found: &dyn encoding::Encoding) -> bool {
        let found = found as &dyn Any;
        if let Some(found) = found.downcast_ref::<Learned>() {
            return found.table_rows == self.rows && found.offset == 0;
        }
        // A table may hold sinusoids.
        let found = found.downcast_ref::<Sinusoidal>();
        found.is_some_and(|found| found.max_positions == Some(self.rows))
    }

    fn is_found_as(
        &self,
        found: &dyn encoding::Encoding,
        _max_length: Option<usize>,
        common: &Common,
    ) -> bool {
        let found = (found as &dyn Any).downcast_ref::<Learned>();
        let asked = common.max_length;
        found.is_some_and(|found| asked.is_none_or(|n| n <= found.max_positions))
    }
}

impl Learned {
    /// What is added at these positions, `[position, dim]`; `None` where one has no row.
    pub fn reference(
        &self,
        table: ArrayView2<'_, f64>,
        positions: &[usize],
    ) -> Option<Array2<f64>> {
        let rows: Vec<usize> = positions.iter().map(|p| self.offset + p).collect();
        let all = rows.iter().all(|r| *r < table.nrows());
        all.then(|| table.select(Axis(0), &rows))
    }

    /// A table whose tokens, the first of which stands at position `first`, read these rows.
    ///
    /// # Errors
    /// A [`Miss`] where the rows are not read one after another.
    pub fn identify(
        [table_rows, dim]: [usize; 2],
        read: &[i64],
        first: usize,
        prefix: usize,
        grid: Option<[usize; 2]>,
    ) -> Result<Self, Miss> {
        let offset = offset(read, first)?;
        let max_positions = table_rows
            .checked_sub(offset)
            .filter(|usable| *usable >= read.len())
            .ok_or_else(|| Miss::new("the table ends before the sequence does"))?;
        Ok(Self {
            max_positions,
            table_rows,
            dim,
            offset,
            prefix,
            grid,
        })
    }
}

/// The row of position 0, given the rows that tokens from position `first` on read.
///
/// # Errors
/// A [`Miss`] where these are not one after another, or fewer than two.
pub fn offset(read: &[i64], first: usize) -> Result<usize, Miss> {
    let [start, next, ..] = *read else {
        return Err(Miss::new("fewer than two positions are at hand"));
    };
    if let Some(pair) = read.windows(2).find(|w| w[1] != w[0] + 1) {
        let why = if next == start && read.iter().all(|r| *r == start) {
            "every token reads the same row".to_owned()
        } else {
            format!("row {} is followed by row {}", pair[0], pair[1])
        };
        return Err(Miss::new(why));
    }
    let start = usize::try_from(start).map_err(|_| Miss::new("rows are counted from the end"))?;
    // Without a cache in this branch, the first token is at 0.
    Ok(start.checked_sub(first).unwrap_or(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_row_that_is_read_tells_the_offset() {
        type Case = (
            &'static str,
            &'static [i64],
            usize,
            Result<usize, &'static str>,
        );
        let cases: [Case; 9] = [
            ("plain", &[0, 1, 2], 0, Ok(0)),
            ("two reserved rows", &[2, 3, 4], 0, Ok(2)),
            ("one more", &[3, 4, 5], 0, Ok(3)),
            ("after five tokens of a cache", &[7, 8, 9], 5, Ok(2)),
            ("no cache in this branch", &[2, 3], 5, Ok(2)),
            (
                "types",
                &[0, 0, 0],
                0,
                Err("every token reads the same row"),
            ),
            (
                "every other row",
                &[0, 2, 4],
                0,
                Err("row 0 is followed by row 2"),
            ),
            (
                "backwards",
                &[2, 1, 0],
                0,
                Err("row 2 is followed by row 1"),
            ),
            (
                "one token",
                &[4],
                0,
                Err("fewer than two positions are at hand"),
            ),
        ];
        for (name, read, first, want) in cases {
            let got = offset(read, first).map_err(|m| m.why);
            assert_eq!(got, want.map_err(str::to_owned), "{name}");
        }
    }

    #[test]
    fn a_table_of_a_rewrite_has_given_rows_or_needs_a_length() {
        let none = GivenTensors::default();
        let plan = |max_length: Option<usize>| {
            let common = Common {
                max_length,
                ..Common::default()
            };
            LearnedTerm::plan(&common, &none)
        };
        assert_eq!(plan(None), Err(PlanError::Missing("max-length")));
        let term = plan(Some(3)).unwrap();
        assert_eq!(term.tensors(2), [[3, 2]]);
        let table = ndarray::arr2(&[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]);
        let of = |positions: &[usize]| {
            InputTerm::reference(&term, &[table.clone().into_dyn()], 2, positions)
        };
        assert_eq!(of(&[2, 0]), Some(ndarray::arr2(&[[5.0, 6.0], [1.0, 2.0]])));
        assert_eq!(of(&[3]), None);
    }

    #[test]
    fn usable_rows_are_those_from_position_zero_on() {
        let table = Learned::identify([66, 8], &[2, 3, 4], 0, 0, None).unwrap();
        assert_eq!((table.max_positions, table.offset), (64, 2));
        let short = Learned::identify([4, 8], &[2, 3, 4], 0, 0, None);
        assert_eq!(
            short.unwrap_err().why,
            "the table ends before the sequence does"
        );
    }

    #[test]
    fn the_reference_reads_rows_from_the_offset_on_and_none_beyond_the_table() {
        let table = Learned::identify([6, 2], &[2, 3], 0, 0, None).unwrap();
        let data = Array2::from_shape_fn((6, 2), |(r, c)| (10 * r + c) as f64);
        let got = table.reference(data.view(), &[0, 3]).unwrap();
        assert_eq!(got, ndarray::arr2(&[[20.0, 21.0], [50.0, 51.0]]));
        assert_eq!(table.reference(data.view(), &[4]), None);
    }
}
