//! What limits the length of a sequence: constants whose rows are picked by position, buffers
//! that are cut to the length, and shapes that were fixed at export.

use std::collections::BTreeSet;

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Model, Node, ValueId};

use crate::dataflow::{Class, Classes};
use crate::lane::wrap;
use crate::ports::Ports;
use crate::report::{Limit, LimitCause};

/// Every limit that the graph holds, smallest first.
pub(crate) fn limits(model: &Model, classes: &Classes, trace: &Trace, ports: &Ports) -> Vec<Limit> {
    let graph = model.graph();
    let mut found = BTreeSet::new();
    if let Some(length) = ports.fixed_sequence() {
        found.insert((length, LimitCause::StaticShape, None));
    }
    for (_, node) in graph.nodes() {
        let picked = match (node.domain(), node.op()) {
            ("", "Gather") => rows_by_position(classes, trace, node, 1, None),
            ("", "GatherElements") => rows_by_position(classes, trace, node, 1, None),
            ("", "Slice") => cut_to_length(classes, trace, node),
            (_, "RotaryEmbedding") => rotary_cache(trace, node),
            _ => None,
        };
        if let Some((table, length)) = picked {
            let cause = cause(graph, trace, node, table, length);
            found.insert((length, cause, source_name(graph, table)));
        }
    }
    found
        .into_iter()
        .map(|(length, cause, value)| Limit {
            length,
            cause,
            value,
        })
        .collect()
}

/// A constant whose rows are picked by an index that follows position.
fn rows_by_position(
    classes: &Classes,
    trace: &Trace,
    node: &Node,
    index: usize,
    axis: Option<usize>,
) -> Option<(ValueId, usize)> {
    let (table, index) = (node.input(0)?, node.input(index)?);
    let class = classes.of_value(index);
    let follows = class.has(Class::POSITION) && !class.has(Class::CONTENT);
    // A shape vector is picked from by constants, never by position.
    let dims = trace.get(table).dims.as_ref()?;
    let axis = match axis {
        Some(axis) => axis,
        None => wrap(node.int("axis").ok()?.unwrap_or(0), dims.len())?,
    };
    let known = !classes.of_value(table).has(Class::CONTENT)
        && !classes.of_value(table).has(Class::POSITION)
        && !classes.of_value(table).has(Class::PADDING);
    let rows = dims[axis];
    (follows && known && rows > 1 && many(trace, index)).then_some((table, rows))
}

fn many(trace: &Trace, index: ValueId) -> bool {
    let dims = &trace.get(index).dims;
    dims.as_ref()
        .is_some_and(|d| d.iter().product::<usize>() > 1)
}

/// A constant that is cut to the length of the sequence.
fn cut_to_length(classes: &Classes, trace: &Trace, node: &Node) -> Option<(ValueId, usize)> {
    let (table, ends) = (node.input(0)?, node.input(2)?);
    let length = classes.of_value(ends).has(Class::LENGTH);
    if !length || !classes.of_value(table).is_constant() {
        return None;
    }
    let from = trace.get(table).dims.clone()?;
    let to = trace.get(node.output(0)?).dims.clone()?;
    let axis = (0..from.len()).find(|a| from[*a] != to[*a])?;
    Some((table, from[axis]))
}

/// cos and sin of a rotary operator that picks rows itself.
fn rotary_cache(trace: &Trace, node: &Node) -> Option<(ValueId, usize)> {
    let (positions, cache) = match node.domain() {
        "" => (node.input(3)?, node.input(1)?),
        _ => (node.input(1)?, node.input(2)?),
    };
    let _ = positions;
    let dims = trace.get(cache).dims.as_ref()?;
    (dims.len() == 2).then(|| (cache, dims[0]))
}

fn cause(graph: &Graph, trace: &Trace, node: &Node, table: ValueId, length: usize) -> LimitCause {
    use posenc_ir::DType;
    if node.op() == "RotaryEmbedding" {
        return LimitCause::Cache;
    }
    let dims = trace.get(table).dims.clone().unwrap_or_default();
    let planes = dims.iter().filter(|d| **d == length).count();
    match graph.dtype(table).or(trace.get(table).dtype) {
        Some(dtype) if dtype.is_int() => match trace.get(table).to_i64() {
            Some(data) if data.iter().all(|v| *v == 0) => LimitCause::TokenTypeBuffer,
            _ => LimitCause::PositionBuffer,
        },
        Some(DType::Bool) => LimitCause::CausalBuffer,
        _ if planes > 1 => LimitCause::CausalBuffer,
        _ => LimitCause::Table,
    }
}

/// The name of the stored tensor behind a constant.
fn source_name(graph: &Graph, mut value: ValueId) -> Option<String> {
    loop {
        if graph.stored(value).is_some() {
            return Some(graph.name(value).to_owned());
        }
        let (id, _) = graph.producer(value)?;
        value = graph.node(id).input(0)?;
    }
}
