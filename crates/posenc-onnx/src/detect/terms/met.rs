//! What pairs of queries and keys meet in a term of the scores. Data only.

use std::collections::BTreeMap;

use ndarray::Array2;
use posenc_encodings::families::transformer_xl::Code;
use posenc_ir::{Use, ValueId};

/// The number of a vector for each distance `key − query`.
pub(crate) type Distances = BTreeMap<i64, i64>;

/// Whose content meets the vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Query,
    Key,
}

/// The vector that each visible pair meets, by number: those of a table by row, others by order of
/// appearance. `None` for pairs that are hidden or meet none.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) side: Side,
    pub(crate) rows: Array2<Option<i64>>,
    /// Visible pairs that meet no vector.
    pub(crate) without: Vec<(usize, usize)>,
    /// Keys before the first query.
    pub(crate) past: i64,
    /// The table whose rows these are, and their axis.
    pub(crate) table: Option<(ValueId, usize)>,
    /// All heads meet the same vectors.
    pub(crate) shared: bool,
}

impl Reading {
    /// The vector of each distance `key − query`, where the distance alone determines it.
    pub(crate) fn by_distance(&self) -> Option<Distances> {
        by_distance(&self.rows, &self.without, self.past)
    }
}

/// The number of each distance `key − query`, where the distance alone determines it, and which
/// pairs are `without` one.
pub(crate) fn by_distance(
    rows: &Array2<Option<i64>>,
    without: &[(usize, usize)],
    past: i64,
) -> Option<Distances> {
    let distance = |i: usize, j: usize| j as i64 - (i as i64 + past);
    let mut found = Distances::new();
    for ((i, j), row) in rows.indexed_iter() {
        let Some(row) = row else { continue };
        if *found.entry(distance(i, j)).or_insert(*row) != *row {
            return None;
        }
    }
    let is_mixed = without
        .iter()
        .any(|(i, j)| found.contains_key(&distance(*i, *j)));
    (found.len() > 1 && !is_mixed).then_some(found)
}

/// A meeting that was read.
pub(crate) struct Met {
    pub(crate) entry: Use,
    pub(crate) side: Side,
    pub(crate) reading: Reading,
    /// The row of each distance; `None` where the distance alone does not determine it.
    pub(crate) distances: Option<Distances>,
    /// The vectors of the heads are projections of others.
    pub(crate) projected: bool,
    /// Rows of the table, where they do not grow with the sequence.
    pub(crate) rows: Option<usize>,
    /// Rows of the stored table that one that grows is cut from.
    pub(crate) origin: Option<usize>,
    pub(crate) code: Option<Waves>,
}

/// Vectors that the weights of attention gather.
pub(crate) struct Gathering {
    pub(crate) entry: Use,
    pub(crate) rows: Option<usize>,
    pub(crate) distances: Distances,
    /// Some distances have no vector.
    pub(crate) is_window: bool,
}

/// Vectors that are sines and cosines of the distance.
#[derive(Clone, Debug)]
pub(crate) struct Waves {
    pub(crate) code: Code,
    pub(crate) max_length: Option<usize>,
}
