//! Lengths of a trial run that the graph itself names.

use std::collections::BTreeMap;

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Node};

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

/// For each constant whose rows are read by position to the last one, or beyond: the number of tokens for
/// which it has a row to spare.
pub(super) fn exhausted(
    graph: &Graph,
    classes: &Classes,
    trace: &Trace,
    sequence: usize,
) -> Vec<usize> {
    let all = graph.nodes().filter_map(|(_, node)| {
        let table = node.input(0)?;
        let dims = trace.get(table).dims.as_deref()?;
        if !classes.of_value(table).is_constant() {
            return None;
        }
        let (rows, read) = match (node.domain(), node.op()) {
            ("", "Slice") => cut(classes, trace, node, dims)?,
            ("", "Gather" | "GatherElements") => picked(classes, trace, node, dims)?,
            _ => return None,
        };
        let tokens = sequence.checked_mul(rows.checked_sub(1)?)?;
        let tokens = tokens.checked_div(read)?;
        (read >= rows).then_some(tokens)
    });
    all.collect()
}

/// The rows of a constant that is cut at a place that follows the length, and this place.
fn cut(classes: &Classes, trace: &Trace, node: &Node, dims: &[usize]) -> Option<(usize, usize)> {
    let ends = node.input(2)?;
    if !classes.of_value(ends).has(Class::LENGTH) {
        return None;
    }
    let places = trace.get(ends).to_i64()?;
    let along = match node.input(3) {
        Some(along) => trace.get(along).to_i64()?.iter().copied().collect(),
        None => (0..dims.len() as i64).collect::<Vec<i64>>(),
    };
    let read = places.iter().zip(along).filter_map(|(end, axis)| {
        let rows = *dims.get(wrap(axis, dims.len())?)?;
        // What is whole for any length ends at the greatest integers.
        let end = usize::try_from(*end).ok().filter(|end| *end <= MOST)?;
        Some((rows, end))
    });
    read.filter(|(rows, _)| *rows > 1)
        .min_by_key(|(rows, end)| rows.saturating_sub(*end))
}

/// The rows of a constant that positions pick, and the row behind the last that is picked. `None` for a table that
/// is read to its last row in sequences of any length: some of its rows are picked more often than others, as those
/// of distances are.
fn picked(classes: &Classes, trace: &Trace, node: &Node, dims: &[usize]) -> Option<(usize, usize)> {
    let index = node.input(1)?;
    let class = classes.of_value(index);
    if !class.has(Class::POSITION) || class.has(Class::CONTENT) {
        return None;
    }
    let axis = wrap(node.int("axis").ok()?.unwrap_or(0), dims.len())?;
    let rows = *dims.get(axis)?;
    let picked = trace.get(index).to_i64()?;
    let last = picked.iter().copied().max()?;
    let read = usize::try_from(last).ok()?.checked_add(1)?;
    if read != rows {
        return Some((rows, read));
    }
    let mut times = BTreeMap::<i64, usize>::new();
    for row in picked.iter() {
        *times.entry(*row).or_default() += 1;
    }
    let is_even = times.len() > 1 && times.values().all(|count| *count == times[&last]);
    is_even.then_some((rows, read))
}

/// The length at which a size becomes `wanted`, in proportion to what is `seen` at the length `sequence`. `None` where
/// that is no whole number, and for one token, because a size of one is repeated to fit any other.
fn proportional(sequence: usize, (seen, wanted): (usize, usize)) -> Option<usize> {
    let length = sequence.checked_mul(wanted)?;
    let whole = length.checked_div(seen)?;
    let fits = whole.checked_mul(seen) == Some(length);
    (fits && (2..=MOST).contains(&whole)).then_some(whole)
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
        assert_eq!(proportional(14, (28, 2)), None);
        assert_eq!(proportional(14, (0, 24)), None);
        assert_eq!(proportional(14, (1, MOST)), None);
        assert_eq!(proportional(2, (1, usize::MAX)), None);
    }
}
