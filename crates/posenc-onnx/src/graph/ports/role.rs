//! The role of an input, from its name, its type and its uses.

use posenc_ir::{DType, Dim, Graph, ValueId};
use rustc_hash::FxHashSet;

use super::{Port, Role};
use crate::graph::operators::{is_copy, is_layout};
use crate::graph::sizes::is_of_sizes_and;

pub(crate) fn role(graph: &Graph, value: ValueId, dtype: DType, rank: usize) -> Role {
    let name = graph.name(value).to_lowercase();
    let named = |words: &[&str]| words.iter().any(|w| name.contains(w));
    if dtype == DType::Bool && rank <= 1 {
        return if named(&["mask"]) {
            Role::Padding
        } else {
            Role::CacheFlag
        };
    }
    if named(&["mask", "padding"]) && rank >= 1 {
        return Role::Padding;
    }
    let position = named(&["position", "pos_id", "input_pos", "pos_ids"]) || name == "pos";
    if dtype.is_float() && position && rank <= 2 {
        return Role::Positions;
    }
    if dtype.is_float() {
        let cached = rank >= 3 && (named(&["past", "cache"]) || joined(graph, value));
        return if cached { Role::Past } else { Role::Content };
    }
    if position || feeds_sines(graph, value) {
        Role::Positions
    } else if named(&["token_type", "segment"]) {
        Role::TokenTypes
    } else if rank == 1 && is_compared_with_places(graph, value) {
        Role::Counts
    } else if rank == 0 || named(&["seqlen", "seq_len", "length"]) {
        Role::Content
    } else if indexes_floats(graph, value) || named(&["ids", "tokens"]) {
        Role::Tokens
    } else {
        Role::Content
    }
}

/// Whether an input contains the time step of each token: integers, by the name. One number for a
/// whole sequence is the step of a process, as in diffusion.
pub(crate) fn contains_time_steps(graph: &Graph, port: &Port) -> bool {
    let name = graph.name(port.value).to_lowercase();
    let says = ["timestep", "time_step"];
    let each = port.dims.len() == 2 && port.dims[1] != Dim::Known(1);
    port.dtype.is_int() && each && says.iter().any(|word| name.contains(word))
}

/// Whether every use of the value compares it with a range, or tells a recurrence where to end: with
/// places of tokens, to tell those that count.
fn is_compared_with_places(graph: &Graph, value: ValueId) -> bool {
    let mut stack = vec![value];
    let mut seen = FxHashSet::default();
    let mut compared = false;
    while let Some(value) = stack.pop() {
        if !seen.insert(value) {
            continue;
        }
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            match node.op() {
                op if (is_copy(op) || is_layout(op)) && at.slot() == 0 => {
                    stack.extend(node.outputs().iter().flatten());
                }
                "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual" => {
                    let other = node.input(1 - at.slot());
                    if !other.is_some_and(|other| is_range(graph, other)) {
                        return false;
                    }
                    compared = true;
                }
                // As a convolution with strides shortens a sequence.
                "Add" | "Sub" | "Mul" | "Div" | "Floor" | "Ceil" => {
                    let mut others = node.inputs().iter().flatten().filter(|v| **v != value);
                    if !others.all(|other| graph.stored(*other).is_some()) {
                        return false;
                    }
                    stack.extend(node.outputs().iter().flatten());
                }
                // The longest of all.
                "ReduceMax" | "Shape" => {}
                // Sequences of a batch in the order of their lengths, as recurrences take them.
                "TopK" if at.slot() == 0 => stack.extend(node.output(0)),
                "GRU" | "LSTM" | "RNN" if at.slot() == 4 => {}
                "ReverseSequence" if at.slot() == 1 => {}
                _ => return false,
            }
        }
    }
    compared
}

/// Whether a value is a range, through casts and changes of shape.
fn is_range(graph: &Graph, value: ValueId) -> bool {
    let mut value = value;
    loop {
        let Some((id, _)) = graph.producer(value) else {
            return false;
        };
        let node = graph.node(id);
        match node.input(0) {
            Some(before) if is_copy(node.op()) || is_layout(node.op()) => value = before,
            _ => return node.is("Range"),
        }
    }
}

/// Whether the value picks rows of a table of floats, also where ids from the end are made ids from the
/// beginning first.
fn indexes_floats(graph: &Graph, value: ValueId) -> bool {
    let mut stack = vec![value];
    let mut seen = FxHashSet::default();
    while let Some(value) = stack.pop() {
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            let picks = matches!(node.op(), "Gather" | "GatherND") && at.slot() == 1;
            let table = || node.input(0).and_then(|t| graph.dtype(t));
            if picks && table().is_some_and(DType::is_float) {
                return true;
            }
            let is_beside_constants = || {
                let mut others = node.inputs().iter().flatten().filter(|v| **v != value);
                others.all(|other| graph.stored(*other).is_some())
            };
            let moves = match node.op() {
                op if is_copy(op) || is_layout(op) => at.slot() == 0,
                "Where" => at.slot() > 0,
                "Add" | "Clip" | "Max" | "Min" => is_beside_constants(),
                _ => false,
            };
            if moves && node.domain().is_empty() && seen.insert(at.node) {
                stack.extend(node.outputs().iter().flatten());
            }
        }
    }
    false
}

/// Whether angles are computed from the value: it reaches a sine or cosine through casts, changes
/// of shape and arithmetic, and is no index on that path. Other operators end the search.
fn feeds_sines(graph: &Graph, value: ValueId) -> bool {
    let mut stack = vec![value];
    let mut seen = FxHashSet::default();
    while let Some(value) = stack.pop() {
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            if !node.domain().is_empty() || !seen.insert(at.node) {
                continue;
            }
            match node.op() {
                "Sin" | "Cos" => return true,
                "Add" | "Sub" | "Mul" | "Div" | "MatMul" | "Einsum" | "Concat" => {
                    stack.extend(node.outputs().iter().flatten());
                }
                op if is_copy(op) || is_layout(op) && at.slot() == 0 => {
                    stack.extend(node.outputs().iter().flatten());
                }
                _ => {}
            }
        }
    }
    false
}

/// The inputs that are tables: floats of one size for all sequences, beside inputs of open size, of which
/// places in the sequence pick rows, or from which angles are computed.
pub(super) fn tables(graph: &Graph, ports: &[Port]) -> Vec<usize> {
    let is_open = |port: &Port| port.dims.iter().any(|dim| !matches!(dim, Dim::Known(_)));
    if !ports.iter().any(is_open) {
        return vec![];
    }
    let is_table = |port: &Port| {
        let is_float = port.dtype.is_float() && port.role == Role::Content;
        is_float
            && match port.dims[..] {
                [Dim::Known(2..)] => feeds_sines(graph, port.value),
                [Dim::Known(2..), Dim::Known(_)] => has_rows_by_place(graph, ports, port.value),
                _ => false,
            }
    };
    let all = ports.iter().enumerate();
    all.filter(|(_, port)| is_table(port))
        .map(|(at, _)| at)
        .collect()
}

/// Whether all that reads a value picks rows of it by places in the sequence.
fn has_rows_by_place(graph: &Graph, ports: &[Port], value: ValueId) -> bool {
    let is_position = |value: ValueId| {
        let mut ports = ports.iter();
        ports.any(|port| port.value == value && port.role == Role::Positions)
    };
    let picks = |at: &posenc_ir::Use| {
        let node = graph.node(at.node);
        let first = node.int("axis").ok().flatten().unwrap_or(0) == 0;
        let rows = node.is("Gather") && at.slot() == 0 && first;
        rows && node
            .input(1)
            .is_some_and(|index| is_of_sizes_and(graph, index, is_position))
    };
    let uses = graph.uses(value);
    !uses.is_empty() && uses.iter().all(picks)
}

/// Whether the value is only ever the first part of a concatenation, as caches are.
pub(super) fn joined(graph: &Graph, value: ValueId) -> bool {
    let uses = graph.uses(value);
    let first = |u: &posenc_ir::Use| graph.node(u.node).is("Concat") && u.slot() == 0;
    uses.iter().any(first)
        && uses
            .iter()
            .all(|u| first(u) || graph.node(u.node).is("Shape"))
}
