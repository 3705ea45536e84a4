//! Constants whose rows a product picks, with a one in each line of its other operand, as `OneHot`
//! makes them. Beyond the last row such a line is zero, which no runtime reports.

use ndarray::{ArrayD, Axis};
use posenc_ir::{Node, NodeId, ValueId};

use super::{Longer, Reach};
use crate::graph::dataflow::Class;
use crate::graph::product::Letters;

/// A constant whose rows a product picks by position, and the longest sequence that it has rows
/// for.
pub(super) fn rows_by_product(
    longer: &mut Longer<'_>,
    id: NodeId,
    node: &Node,
) -> Option<(ValueId, usize)> {
    let runs = longer.runs;
    let (classes, lengths) = (&runs.found.classes, runs.found.lengths);
    let inputs = [node.input(0)?, node.input(1)?];
    let follows = |v: ValueId| {
        let class = classes.of_value(v);
        class.has(Class::POSITION) && !class.has(Class::CONTENT)
    };
    let slot = (0..2)
        .find(|slot| follows(inputs[*slot]) && classes.of_value(inputs[1 - slot]).is_constant())?;
    let [ones, table] = [inputs[slot], inputs[1 - slot]];
    let letters = Letters::of(runs.model.graph(), &runs.found.trace, id)?;
    let (own, other) = (&letters.operands[slot], &letters.operands[1 - slot]);
    let mut contracted = (0..own.len()).filter(|i| !letters.result.contains(&own[*i]));
    let (axis, None) = (contracted.next()?, contracted.next()) else {
        return None;
    };
    let place = other.iter().position(|c| *c == own[axis])?;
    let rows = *runs.found.trace.get(table).dims.as_ref()?.get(place)?;
    if rows < 2 {
        return None;
    }
    let picked = picked(&runs.found.trace.get(ones).to_f64()?, axis)?;
    let picked = picked.mapv(|row| row.unwrap_or(-1));
    let at = Reach::of_rows(&picked, picked.ndim(), lengths.batch)?;
    if at.least < 0 || at.most == at.least {
        return None;
    }
    let length = at.length_for(rows, lengths.past)?;
    let after = longer.beyond(length).and_then(|t| t.get(ones).to_f64());
    let ends = match after.map(|numbers| self::picked(&numbers, axis)) {
        Some(Some(rows)) => rows.iter().any(Option::is_none),
        // What cannot be run may end.
        _ => true,
    };
    ends.then_some((table, length))
}

/// The place of the one in each line along an axis, `None` for a line of zeros; nothing where other
/// numbers occur.
fn picked(numbers: &ArrayD<f64>, axis: usize) -> Option<ArrayD<Option<i64>>> {
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
