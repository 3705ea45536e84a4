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
            ("", "Gather" | "GatherElements") => rows_by_position(classes, trace, node),
            ("", "Slice") => cut_to_length(classes, trace, node),
            (_, "RotaryEmbedding") => rotary_cache(classes, trace, node),
            ("com.microsoft", "GroupQueryAttention") => {
                chosen_cache(graph, classes, trace, node.input(7))
            }
            ("com.microsoft", "SparseAttention") => {
                chosen_cache(graph, classes, trace, node.input(9))
            }
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
fn rows_by_position(classes: &Classes, trace: &Trace, node: &Node) -> Option<(ValueId, usize)> {
    let (table, index) = (node.input(0)?, node.input(1)?);
    let class = classes.of_value(index);
    let follows = class.has(Class::POSITION) && !class.has(Class::CONTENT);
    // A shape vector is picked from by constants, never by position.
    let dims = trace.get(table).dims.as_ref()?;
    let axis = wrap(node.int("axis").ok()?.unwrap_or(0), dims.len())?;
    let class = classes.of_value(table);
    let stored = !class.has(Class::CONTENT) && !class.has(Class::PADDING);
    let rows = dims[axis];
    // A table that is made for the positions at hand has no row to spare.
    let grows = class.has(Class::POSITION) || class.has(Class::LENGTH);
    let spare = largest(trace, index).is_some_and(|last| last + 1.0 < rows as f64);
    let ends = stored && rows > 1 && (!grows || spare);
    (follows && ends && many(trace, index)).then_some((table, rows))
}

fn largest(trace: &Trace, index: ValueId) -> Option<f64> {
    trace.get(index).to_f64()?.iter().copied().reduce(f64::max)
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
fn rotary_cache(classes: &Classes, trace: &Trace, node: &Node) -> Option<(ValueId, usize)> {
    let cache = match node.domain() {
        "" => node.input(3).and(node.input(1))?,
        _ => node.input(1).and(node.input(2))?,
    };
    let dims = trace.get(cache).dims.as_ref()?;
    (dims.len() == 2 && !is_made(classes, cache)).then(|| (cache, dims[0]))
}

/// Whether rows are made for the positions at hand, and so end nowhere.
fn is_made(classes: &Classes, cache: ValueId) -> bool {
    classes.of_value(cache).has(Class::POSITION)
}

/// The rows of a cache; of several that a branch chooses from, those of the longest.
fn chosen_cache(
    graph: &Graph,
    classes: &Classes,
    trace: &Trace,
    cache: Option<ValueId>,
) -> Option<(ValueId, usize)> {
    let cache = cache.filter(|v| !is_made(classes, *v))?;
    let rows = |v: ValueId| match trace.get(v).dims.as_deref() {
        Some([rows, _]) => Some(*rows),
        _ => None,
    };
    let mut most = rows(cache);
    if let Some((id, output)) = graph.producer(cache) {
        for (_, body) in graph.node(id).bodies() {
            let made = graph.scope(body).outputs().get(output).copied();
            let stored = made.and_then(|v| graph.constant(v)?.dims().first().copied());
            most = most.max(stored);
        }
    }
    Some((cache, most?))
}

fn cause(graph: &Graph, trace: &Trace, node: &Node, table: ValueId, length: usize) -> LimitCause {
    use posenc_ir::DType;
    if !node.domain().is_empty() || node.op() == "RotaryEmbedding" {
        return LimitCause::Cache;
    }
    let dims = trace.get(table).dims.clone().unwrap_or_default();
    let square = dims.ends_with(&[length, length]);
    match graph.dtype(table).or(trace.get(table).dtype) {
        Some(dtype) if dtype.is_int() => match trace.get(table).to_i64() {
            Some(data) if data.iter().all(|v| *v == 0) => LimitCause::TokenTypeBuffer,
            _ => LimitCause::PositionBuffer,
        },
        Some(DType::Bool) => LimitCause::CausalBuffer,
        _ if square && two_valued(trace, table) => LimitCause::CausalBuffer,
        _ => LimitCause::Table,
    }
}

/// Whether a constant holds no more than two different numbers, as masks do.
fn two_valued(trace: &Trace, table: ValueId) -> bool {
    let Some(data) = trace.get(table).to_f64() else {
        return false;
    };
    let first = data.iter().next().copied();
    let mut others = data.iter().copied().filter(|v| Some(*v) != first);
    let second = others.next();
    others.all(|v| Some(v) == second)
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
