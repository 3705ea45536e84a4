//! What the rows of a table are made from: codes of positions, projected or not.

use ndarray::{Array2, Axis};
use posenc_ir::eval::Trace;
use posenc_ir::{Graph, NodeId, ValueId};
use rustc_hash::FxHashSet;

use super::meeting::chain;
use crate::graph::operators::is_product;
use crate::graph::product::Letters;

/// What rows are computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowSource {
    pub(crate) value: ValueId,
    /// The axis of features; rows are on another.
    features: usize,
    /// Whether a product is between.
    pub(crate) projected: bool,
}

/// Values that the rows of a table may be made from, nearest first.
pub(crate) fn sources(graph: &Graph, trace: &Trace, table: ValueId, axis: usize) -> Vec<RowSource> {
    let mut found = vec![];
    let dims = trace.get(table).dims.clone().unwrap_or_default();
    let mut wide = (0..dims.len()).filter(|a| *a != axis && dims[*a] > 1);
    if let (Some(features), None) = (wide.next(), wide.next()) {
        found.push(RowSource {
            value: table,
            features,
            projected: false,
        });
    }
    let mut at = table;
    // A bias of the projection may be between.
    if let Some((id, _)) = graph.producer(at)
        && graph.node(id).is("Add")
    {
        let made = |v: &&ValueId| {
            let maker = graph.producer(**v).map(|(id, _)| graph.node(id));
            maker.is_some_and(is_product)
        };
        let inputs = graph.node(id).inputs();
        at = inputs.iter().flatten().find(made).copied().unwrap_or(at);
    }
    let Some((id, _)) = graph.producer(at).filter(|_| graph.stored(at).is_none()) else {
        return found;
    };
    for slot in 0..2 {
        let features = summed(graph, trace, id, slot);
        if let Some((value, features)) = graph.node(id).input(slot).zip(features) {
            found.push(RowSource {
                value,
                features,
                projected: true,
            });
        }
    }
    found
}

/// The axis of an operand of a product that is summed over.
fn summed(graph: &Graph, trace: &Trace, id: NodeId, slot: usize) -> Option<usize> {
    let node = graph.node(id);
    if node.is("Gemm") {
        let name = ["transA", "transB"][slot];
        let transposed = matches!(node.int(name), Ok(Some(n)) if n != 0);
        return Some(if (slot == 0) != transposed { 1 } else { 0 });
    }
    let letters = Letters::of(graph, trace, id)?;
    let own = letters.operands.get(slot)?;
    let mut axes = (0..own.len()).filter(|a| !letters.result.contains(&own[*a]));
    axes.next().filter(|_| axes.next().is_none())
}

impl RowSource {
    /// `[row, feature]` in a run, where the numbers are known and one axis has `rows` of them.
    pub(crate) fn code(&self, trace: &Trace, rows: Option<usize>) -> Option<Array2<f64>> {
        let data = trace.get(self.value).to_f64()?;
        let dims = data.shape().to_vec();
        let mut wide = (0..dims.len())
            .filter(|a| *a != self.features && dims[*a] > 1)
            .filter(|a| rows.is_none_or(|n| dims[*a] == n));
        let rows = wide.next()?;
        let mut plane = data;
        for axis in (0..dims.len()).rev() {
            if axis != rows && axis != self.features {
                plane = plane.index_axis_move(Axis(axis), 0);
            }
        }
        let plane = plane.into_dimensionality::<ndarray::Ix2>().ok()?;
        let plane = if rows < self.features {
            plane
        } else {
            plane.reversed_axes()
        };
        Some(plane.as_standard_layout().into_owned())
    }

    /// `[row, feature]` of the stored table that it is moved or cut from, and whether it is cut.
    pub(crate) fn stored(
        &self,
        graph: &Graph,
        trace: &Trace,
        width: usize,
    ) -> Option<(Array2<f64>, bool)> {
        let last = *chain(graph, trace, self.value).last()?;
        graph.stored(last)?;
        let data = trace.get(last).to_f64()?;
        let rows = data.len().checked_div(width)?;
        let features_last = data.shape().last() == Some(&width);
        let cut = trace.get(self.value).elements() != Some(data.len());
        let data = data.as_standard_layout().into_owned();
        let table = data.into_shape_with_order((rows, width)).ok()?;
        features_last.then_some((table, cut))
    }

    /// The rows of the stored table that a projected one is cut from.
    pub(crate) fn stored_rows(&self, graph: &Graph, trace: &Trace) -> Option<usize> {
        let width = *trace.get(self.value).dims.as_ref()?.get(self.features)?;
        let last = *chain(graph, trace, self.value).last()?;
        let elements = graph.stored(last).filter(|_| self.projected)?.elements()?;
        let rows = elements.checked_div(width)?;
        (last != self.value && rows > 1).then_some(rows)
    }

    /// Whether it is computed from sines or cosines.
    pub(crate) fn waves(&self, graph: &Graph) -> bool {
        let mut seen = FxHashSet::default();
        let mut stack = vec![self.value];
        while let Some((id, _)) = stack.pop().and_then(|v| graph.producer(v)) {
            let node = graph.node(id);
            if node.is("Sin") || node.is("Cos") {
                return true;
            }
            if seen.insert(id) {
                stack.extend(
                    node.inputs()
                        .iter()
                        .flatten()
                        .filter(|v| graph.producer(**v).is_some()),
                );
            }
        }
        false
    }
}

/// Whether the squares of each row add up as those of sines and cosines do.
pub(crate) fn is_wave(code: &Array2<f64>) -> bool {
    let half = code.ncols() as f64 / 2.0;
    let near = |row: ndarray::ArrayView1<f64>| (row.dot(&row) - half).abs() <= 2e-2 * half;
    code.nrows() > 1 && code.rows().into_iter().all(near)
}
