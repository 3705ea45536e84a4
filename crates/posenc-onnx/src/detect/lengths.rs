//! Lengths of a trial run that the graph itself names.

use posenc_ir::Graph;
use posenc_ir::eval::Trace;

use crate::graph::dataflow::{Class, Classes};

/// The most samples or frames of a trial run.
const MOST: usize = 1 << 14;

/// The length at which content has as many rows as a constant that is added to it. The rows of content
/// are taken to grow in proportion with the length. `None` where content and constants fit each other,
/// and where none does.
pub(super) fn of_table(
    graph: &Graph,
    classes: &Classes,
    trace: &Trace,
    sequence: usize,
) -> Option<usize> {
    let adds = graph.nodes().filter(|(_, node)| node.is("Add"));
    let mut misfits = adds.filter_map(|(_, node)| {
        let [a, b] = [node.input(0)?, node.input(1)?];
        rows(classes, trace, [a, b]).or_else(|| rows(classes, trace, [b, a]))
    });
    let (seen, wanted) = misfits.next()?;
    let length = sequence.checked_mul(wanted)?;
    let whole = length.is_multiple_of(seen) && length / seen <= MOST;
    whole.then_some(length / seen)
}

/// The sizes of the only axis in which content and a constant do not fit.
fn rows(
    classes: &Classes,
    trace: &Trace,
    [content, constant]: [posenc_ir::ValueId; 2],
) -> Option<(usize, usize)> {
    let is_content = classes.of_value(content).has(Class::CONTENT);
    if !is_content || !classes.of_value(constant).is_constant() {
        return None;
    }
    let dims = |v| trace.get(v).dims.as_deref();
    let (own, table) = (dims(content)?, dims(constant)?);
    let pairs = own.iter().rev().zip(table.iter().rev());
    let mut misfits = pairs.filter(|(a, b)| a != b && **a > 1 && **b > 1);
    let (seen, wanted) = misfits.next()?;
    misfits.next().is_none().then_some((*seen, *wanted))
}
