//! Products with lines of ones, which pick rows of their other operand, as `OneHot` makes them.

use ndarray::{ArrayD, Axis};
use posenc_ir::eval::Trace;
use posenc_ir::{Graph, NodeId, ValueId};

use crate::graph::operators::{is_copy, is_product};
use crate::graph::product::Letters;

/// A product that picks rows of a table.
pub(crate) struct Pick {
    /// The operand with a one in each line along `axis`.
    pub(crate) ones: ValueId,
    pub(crate) axis: usize,
    /// The operand whose rows are picked.
    pub(crate) table: ValueId,
    /// The axis of its rows.
    pub(crate) rows: usize,
}

/// What a product picks in the trial run; `None` for other products.
pub(crate) fn pick(graph: &Graph, trace: &Trace, id: NodeId) -> Option<Pick> {
    let node = graph.node(id);
    let letters = Letters::of(graph, trace, id).filter(|_| is_product(node))?;
    (0..2).find_map(|slot| {
        let own = &letters.operands[slot];
        let mut contracted = (0..own.len()).filter(|i| !letters.result.contains(&own[*i]));
        let (axis, None) = (contracted.next()?, contracted.next()) else {
            return None;
        };
        let other = &letters.operands[1 - slot];
        let rows = other.iter().position(|letter| *letter == own[axis])?;
        let ones = node.input(slot)?;
        let table = node.input(1 - slot)?;
        let picked = picked(&trace.get(ones).to_f64()?, axis)?;
        let all = picked.iter().all(Option::is_some);
        all.then_some(Pick {
            ones,
            axis,
            table,
            rows,
        })
    })
}

/// The index that `OneHot` makes lines of ones of, where an operand of a product is such.
pub(crate) fn index(graph: &Graph, id: NodeId) -> Option<ValueId> {
    let made = |mut value: ValueId| loop {
        let node = graph.node(graph.producer(value)?.0);
        let before = node.input(0)?;
        match node.op() {
            "OneHot" => return Some(before),
            op if is_copy(op) => value = before,
            _ => return None,
        }
    };
    let node = graph.node(id);
    let inputs = node.inputs().iter().flatten().copied();
    inputs.filter(|_| is_product(node)).find_map(made)
}

/// The place of the one in each line along an axis, `None` for a line of zeros; nothing where other
/// numbers occur.
pub(crate) fn picked(numbers: &ArrayD<f64>, axis: usize) -> Option<ArrayD<Option<i64>>> {
    let is_chosen = |v: &f64| *v == 1.0;
    if axis >= numbers.ndim() || !numbers.iter().all(|v| *v == 0.0 || is_chosen(v)) {
        return None;
    }
    let several =
        |line: &ndarray::ArrayView1<'_, f64>| line.iter().filter(|v| is_chosen(v)).count();
    let mut lines = numbers.lanes(Axis(axis)).into_iter();
    let is_single = lines.all(|line| several(&line) < 2);
    let place = |line: ndarray::ArrayView1<'_, f64>| {
        let place = line.iter().position(is_chosen);
        place.and_then(|i| i64::try_from(i).ok())
    };
    is_single.then(|| numbers.map_axis(Axis(axis), place))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rows: &[&[f64]]) -> ArrayD<f64> {
        let dims = vec![rows.len(), rows[0].len()];
        ArrayD::from_shape_vec(dims, rows.concat()).unwrap()
    }

    #[test]
    fn only_lines_of_a_single_one_pick_rows() {
        let found = |rows: &[&[f64]]| picked(&of(rows), 1).map(|r| r.into_raw_vec_and_offset().0);
        let rows = found(&[&[0.0, 0.0, 1.0], &[0.0, 0.0, 0.0], &[1.0, 0.0, 0.0]]);
        assert_eq!(rows, Some(vec![Some(2), None, Some(0)]));
        assert_eq!(found(&[&[0.0, 1.0], &[1.0, 1.0]]), None, "two of them");
        assert_eq!(found(&[&[0.0, 0.5], &[1.0, 0.0]]), None, "another number");
    }
}
