//! What pairs meet beyond the trial run: read off the indices that pick the vectors.

use ndarray::{Array2, Ix2, IxDyn};
use posenc_ir::eval::{Trace, Value};
use posenc_ir::{Graph, ValueId};

use super::met::{Distances, Reading, by_distance};
use crate::detect::runs::Runs;
use crate::graph::operators::{is_copy, is_reshape};

/// Tokens of the longer run: at least, at most.
const TOKENS: (usize, usize) = (128, 600);

/// The row of each distance in a run that is long enough to see the table end, where an index
/// of the graph contains just the rows of `reading`.
pub(crate) fn distances(
    runs: &mut Runs<'_>,
    picks: &[ValueId],
    reading: &Reading,
) -> Option<Distances> {
    let (table, axis) = reading.table?;
    let found = runs.found;
    let graph = runs.model.graph();
    let rows = *found.trace.get(table).dims.as_ref()?.get(axis)?;
    let origin = |v: &ValueId| origins(graph, *v);
    let (index, transposed) = picks.iter().flat_map(origin).find_map(|v| {
        let index = plane(found.trace.get(v))?;
        let fits = |index: &Array2<i64>| {
            index.dim() == reading.rows.dim()
                && index
                    .iter()
                    .zip(&reading.rows)
                    .all(|(i, r)| r.is_none_or(|r| r == *i))
        };
        if fits(&index) {
            return Some((v, false));
        }
        fits(&index.reversed_axes().as_standard_layout().into_owned()).then_some((v, true))
    })?;
    // Samples of sound are many to a token.
    let each = found.lengths.sequence.div_ceil(reading.rows.nrows());
    let tokens = (rows + 8).clamp(TOKENS.0, TOKENS.1) * each;
    let whole = |trace: &Trace| {
        let index = plane(trace.get(index))?;
        let index = if transposed {
            index.reversed_axes()
        } else {
            index
        };
        by_distance(&index.mapv(Some), &[], reading.past)
    };
    // A table that grows with the length has other rows there.
    let same = |trace: &&Trace| {
        let dims = trace.get(table).dims.as_deref();
        dims.and_then(|dims| dims.get(axis)) == Some(&rows)
    };
    let mut long = runs
        .at(tokens)
        .filter(same)
        .and_then(whole)
        .or_else(|| whole(&found.trace))?;
    // There are no vectors beyond the table.
    let rows = i64::try_from(rows).ok()?;
    long.retain(|_, row| (0..rows).contains(row));
    Some(long)
}

/// A value and what it is broadcast from, farthest first.
fn origins(graph: &Graph, value: ValueId) -> Vec<ValueId> {
    let mut all = vec![value];
    while let Some((id, _)) = all.last().and_then(|v| graph.producer(*v)) {
        let node = graph.node(id);
        let op = node.op();
        let moves = is_copy(op) || is_reshape(op) || matches!(op, "Expand" | "Tile");
        match node.input(0).filter(|_| moves) {
            Some(next) => all.push(next),
            None => break,
        }
    }
    all.reverse();
    all
}

/// The last two axes of an integer value.
fn plane(value: &Value) -> Option<Array2<i64>> {
    let data = value.to_i64()?;
    let (rank, dims) = (data.ndim(), data.shape().to_vec());
    let [.., rows, columns] = dims[..] else {
        return None;
    };
    let lead: usize = dims[..rank - 2].iter().product();
    let flat: Vec<i64> = data.iter().take(rows * columns).copied().collect();
    let same = data
        .as_standard_layout()
        .into_owned()
        .into_shape_with_order(IxDyn(&[lead, rows * columns]))
        .ok()?;
    if !same.outer_iter().all(|p| p.iter().eq(&flat)) {
        return None;
    }
    let flat = ndarray::ArrayD::from_shape_vec(IxDyn(&[rows, columns]), flat).ok()?;
    flat.into_dimensionality::<Ix2>().ok()
}
