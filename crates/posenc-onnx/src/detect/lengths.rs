//! Lengths of a trial run that the graph itself names.

use posenc_ir::Graph;
use posenc_ir::eval::Trace;

use crate::graph::dataflow::{Class, Classes};
use crate::graph::lane::wrap;

/// The most samples or frames of a trial run.
const MOST: usize = 1 << 14;

/// The length at which content has as many rows as a constant that is added to it, or else as many elements
/// as a shape that it is given, which a trace may have written down for its own length. Rows and elements
/// are taken to grow in proportion with the length. `None` where all fits, and where no length fits or
/// several do.
pub(super) fn written(
    graph: &Graph,
    classes: &Classes,
    trace: &Trace,
    sequence: usize,
) -> Option<usize> {
    let of_tables = graph.nodes().filter_map(|(_, node)| {
        let add = Some(node).filter(|node| node.is("Add"))?;
        let [a, b] = [add.input(0)?, add.input(1)?];
        rows(classes, trace, [a, b]).or_else(|| rows(classes, trace, [b, a]))
    });
    let of_shapes = graph.nodes().filter_map(|(_, node)| {
        let reshape = Some(node).filter(|node| node.is("Reshape"))?;
        elements(classes, trace, [reshape.input(0)?, reshape.input(1)?])
    });
    let only = |misfits: &mut dyn Iterator<Item = (usize, usize)>| {
        let mut lengths = misfits.filter_map(|misfit| proportional(sequence, misfit));
        let first = lengths.next()?;
        lengths.all(|length| length == first).then_some(first)
    };
    only(&mut { of_tables }).or_else(|| only(&mut { of_shapes }))
}

/// The most tokens for which every constant that is cut to their number has a row; `None` where all have
/// enough.
pub(super) fn cut(
    graph: &Graph,
    classes: &Classes,
    trace: &Trace,
    sequence: usize,
) -> Option<usize> {
    let rows = graph.nodes().filter_map(|(_, node)| {
        let cut = Some(node).filter(|node| node.is("Slice"))?;
        let (data, ends) = (cut.input(0)?, cut.input(2)?);
        let follows = classes.of_value(ends).has(Class::LENGTH);
        let dims = trace.get(data).dims.as_ref().filter(|_| follows)?;
        let ends = trace.get(ends).to_i64()?;
        let along = match cut.input(3) {
            Some(along) => trace.get(along).to_i64()?.iter().copied().collect(),
            None => (0..dims.len() as i64).collect::<Vec<i64>>(),
        };
        let is_short = |(end, axis): (&i64, i64)| {
            let rows = *dims.get(wrap(axis, dims.len())?)?;
            let is_cut = usize::try_from(*end) == Ok(sequence) && rows < sequence;
            is_cut.then_some(rows)
        };
        let is_constant = classes.of_value(data).is_constant();
        ends.iter()
            .zip(along)
            .filter(|_| is_constant)
            .filter_map(is_short)
            .min()
    });
    rows.min()
}

/// The length at which a size is `wanted` that is `seen` at the length `sequence`; `None` where none is
/// whole.
fn proportional(sequence: usize, (seen, wanted): (usize, usize)) -> Option<usize> {
    let length = sequence.checked_mul(wanted)?;
    let whole = length.checked_div(seen)?;
    (whole.checked_mul(seen) == Some(length) && whole <= MOST).then_some(whole)
}

/// The only first size that a trace may have written into shapes of content, where content does not fit
/// these.
pub(super) fn batch(graph: &Graph, classes: &Classes, trace: &Trace) -> Option<usize> {
    let mut sizes = graph.nodes().filter_map(|(_, node)| {
        let reshape = Some(node).filter(|node| node.is("Reshape"))?;
        let data = reshape.input(0)?;
        let misfits =
            trace.get(reshape.output(0)?).dims.is_none() && trace.get(data).dims.is_some();
        let is_content = classes.of_value(data).has(Class::CONTENT);
        let shape = trace.get(reshape.input(1)?).to_i64()?;
        let first = usize::try_from(*shape.iter().next()?).ok()?;
        (misfits && is_content && first > 1).then_some(first)
    });
    let first = sizes.next()?;
    sizes.all(|size| size == first).then_some(first)
}

/// How many elements content has, and the shape that it is given.
fn elements(
    classes: &Classes,
    trace: &Trace,
    [data, shape]: [posenc_ir::ValueId; 2],
) -> Option<(usize, usize)> {
    let is_content = classes.of_value(data).has(Class::CONTENT);
    let seen = trace.get(data).elements().filter(|_| is_content)?;
    let dims = trace.get(data).dims.as_deref()?;
    let sizes = trace.get(shape).to_i64()?;
    let wanted = sizes
        .iter()
        .enumerate()
        .try_fold(1usize, |all, (axis, size)| {
            let size = match usize::try_from(*size).ok()? {
                0 => *dims.get(axis)?,
                size => size,
            };
            all.checked_mul(size)
        })?;
    (seen != wanted).then_some((seen, wanted))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_whole_and_not_endless() {
        assert_eq!(proportional(14, (14, 24)), Some(24));
        assert_eq!(proportional(14, (28, 48)), Some(24));
        assert_eq!(proportional(14, (15, 24)), None);
        assert_eq!(proportional(14, (0, 24)), None);
        assert_eq!(proportional(14, (1, MOST)), None);
        assert_eq!(proportional(2, (1, usize::MAX)), None);
    }
}
