//! Values of a cut-out part as rows: one for each token.

use ndarray::{Array2, ArrayD, Axis};
use posenc_ir::eval::Trace;
use posenc_ir::{DType, Graph, ValueId};

use crate::graph::dataflow::Classes;
use crate::graph::region::ancestors;
use crate::prove::bound::SINGLE;

/// Rows `[token, feature]` of a value with this many features in the last axis, or in the only one of that size; those
/// that repeat for each sequence once.
pub(super) fn rows(mut data: ArrayD<f64>, width: usize, sequences: usize) -> Option<Array2<f64>> {
    let last = data.ndim().checked_sub(1)?;
    let mut of_width = (0..=last).filter(|a| data.len_of(Axis(*a)) == width);
    let first = of_width.next()?;
    let axis = match of_width.next_back().unwrap_or(first) {
        axis if axis == last || axis == first => axis,
        _ => return None,
    };
    let order = (0..=last).filter(|a| *a != axis).chain([axis]);
    data = data.permuted_axes(order.collect::<Vec<_>>());
    let count = data.len().checked_div(width)?;
    let numbers: Vec<f64> = data.iter().copied().collect();
    let all = Array2::from_shape_vec((count, width), numbers).ok()?;
    let one = count
        .checked_div(sequences)
        .filter(|n| n * sequences == count);
    let one = one.filter(|n| (*n..count).all(|r| all.row(r) == all.row(r % n)));
    Some(all.slice_move(ndarray::s![..one.unwrap_or(count), ..]))
}

/// The precision of the coarsest type that a value without content is computed in or stored in.
pub(super) fn precision(graph: &Graph, classes: &Classes, trace: &Trace, value: ValueId) -> f64 {
    let all = ancestors(graph, classes, vec![value]).into_iter();
    let types = all.filter_map(|v| trace.get(v).dtype.or(graph.dtype(v)));
    types.filter_map(DType::epsilon).fold(SINGLE, f64::max)
}
