//! Constants whose rows a product picks, with a one in each line of its other operand, as `OneHot`
//! makes them. Beyond the last row such a line is zero, which no runtime reports.

use posenc_ir::{Node, NodeId, ValueId};

use super::longer::Longer;
use super::reach::Reach;
use crate::graph::dataflow::Class;
use crate::graph::ones::picked;
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
    let read = picked(&runs.found.trace.get(ones).to_f64()?, axis)?;
    let read = read.mapv(|row| row.unwrap_or(-1));
    let at = Reach::of_rows(&read, read.ndim(), lengths.batch)?;
    if at.least < 0 || at.most == at.least {
        return None;
    }
    let length = at.length_for(rows, lengths.past)?;
    let after = longer.beyond(length).and_then(|t| t.get(ones).to_f64());
    let ends = match after.map(|numbers| picked(&numbers, axis)) {
        Some(Some(rows)) => rows.iter().any(Option::is_none),
        // What cannot be run may end.
        _ => true,
    };
    ends.then_some((table, length))
}
