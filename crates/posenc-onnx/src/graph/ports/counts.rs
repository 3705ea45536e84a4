//! Lengths of sequences: what compares an input with the places of tokens, to tell those that count.

use std::cell::Cell;

use posenc_ir::{Graph, Node, Use, ValueId};
use rustc_hash::FxHashSet;

use super::uses::{Step, is_behind, is_beside_constants, may_be_positions, moves, picked, reaches};
use crate::graph::operators::{
    bias_slots, is_copy, is_elementwise, is_layout, is_norm, length_slots, may_attend,
};
use crate::graph::sizes::is_of_sizes_by;

/// The most stored places that are looked at.
const MOST: usize = 1 << 16;

/// The most nodes between sizes and what is computed from them to tell places.
const FEW: usize = 64;

/// Whether every use of the value compares it with places of tokens, tells a recurrence where to end, or meets what
/// attention has made, as the mean or the last of all tokens needs it. Before that, numbers may be computed from it,
/// constants and sizes, as a convolution with strides shortens a sequence and as shares of the longest one are
/// lengths.
pub(super) fn is_compared_with_places(graph: &Graph, value: ValueId) -> bool {
    let mut stack = vec![value];
    let mut own = FxHashSet::default();
    let (mut beside, mut distances) = (vec![], vec![]);
    let mut compared = false;
    let pools = |made: Option<ValueId>| made.is_some_and(|made| only_meets_attended(graph, made));
    while let Some(value) = stack.pop() {
        if !own.insert(value) {
            continue;
        }
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            let others = || {
                let slots = (0..node.inputs().len()).filter(|slot| *slot != at.slot());
                slots.filter_map(|slot| node.input(slot))
            };
            match node.op() {
                op if (is_copy(op) || is_layout(op)) && at.slot() == 0 => {}
                _ if meets_attended(graph, node, at) => continue,
                "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual"
                    if others().all(|other| are_places(graph, other)) =>
                {
                    compared = true;
                    continue;
                }
                "Sub" if others().all(|other| are_places(graph, other)) => {
                    distances.extend(node.output(0));
                    continue;
                }
                op if is_arithmetic(op) || is_comparison(op) => {
                    let is_number = |other| own.contains(&other) || is_size(graph, other);
                    if !others().all(is_number) && pools(node.output(0)) {
                        continue;
                    }
                    beside.extend(others());
                }
                // The longest of all.
                "ReduceMax" | "Shape" | "Size" => continue,
                // Sequences of a batch in the order of their lengths, as recurrences take them.
                "TopK" if at.slot() == 0 => {
                    stack.extend(node.output(0));
                    continue;
                }
                "GRU" | "LSTM" | "RNN" if at.slot() == 4 => continue,
                "ReverseSequence" if at.slot() == 1 => continue,
                "Concat" if pools(node.output(0)) => continue,
                _ => return false,
            }
            stack.extend(node.outputs().iter().flatten());
        }
    }
    let is_number = |other: ValueId| own.contains(&other) || is_size(graph, other);
    let are_compared = distances.iter().all(|v| is_only_compared(graph, *v));
    (compared || !distances.is_empty()) && are_compared && beside.into_iter().all(is_number)
}

/// By how much less than all tokens the lengths are that an operator of attention takes from this value, moved and
/// cast; `None` where none does.
pub(super) fn less_than_tokens(graph: &Graph, value: ValueId) -> Option<usize> {
    let mut less = None;
    reaches(graph, [value], |node, at| {
        let slots = length_slots(node).iter();
        match slots.copied().find(|(slot, _)| *slot == at.slot()) {
            Some((_, own)) => {
                less = Some(own);
                Step::Found
            }
            None if moves(node, at) => Step::On,
            None => Step::Stop,
        }
    });
    less
}

/// Whether an operator reads a value beside what attention has made: as factors of it, or as places in it.
fn meets_attended(graph: &Graph, node: &Node, at: &Use) -> bool {
    let picks = matches!(node.op(), "Gather" | "GatherND" | "GatherElements") && at.slot() == 1;
    let scales = matches!(node.op(), "Mul" | "Div" | "Where" | "MatMul");
    let mut others = node.inputs().iter().enumerate();
    (picks || scales)
        && others.any(|(slot, other)| {
            slot != at.slot() && other.is_some_and(|other| is_behind(graph, other, may_attend))
        })
}

/// Whether a value and what is computed of it is read beside what attention has made alone.
fn only_meets_attended(graph: &Graph, value: ValueId) -> bool {
    let mut met = false;
    let others = reaches(graph, [value], |node, at| match node.op() {
        _ if meets_attended(graph, node, at) => {
            met = true;
            Step::Stop
        }
        "Shape" | "Size" => Step::Stop,
        "Concat" => Step::On,
        op if moves(node, at) || is_arithmetic(op) || is_comparison(op) => Step::On,
        _ => Step::Found,
    });
    met && !others
}

/// The places of tokens that a value is compared with.
pub(super) fn compared_places(graph: &Graph, value: ValueId) -> Vec<ValueId> {
    let mut places = vec![];
    reaches(graph, [value], |node, at| {
        let other = node.input(1 - at.slot().min(1));
        let other = other.filter(|other| are_places(graph, *other));
        match (node.op(), other) {
            ("Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual" | "Sub", Some(other)) => {
                places.push(other);
                Step::Stop
            }
            _ if moves(node, at) || is_arithmetic(node.op()) => Step::On,
            _ => Step::Stop,
        }
    });
    places
}

/// Whether every use of a value, moved and cast, compares it with sizes: a distance from a place, to tell on which
/// side that is.
fn is_only_compared(graph: &Graph, value: ValueId) -> bool {
    let mut stack = vec![value];
    let mut own = FxHashSet::default();
    while let Some(value) = stack.pop() {
        if !own.insert(value) {
            continue;
        }
        let uses = graph.uses(value);
        let mut is_read = !uses.is_empty();
        for at in uses {
            let node = graph.node(at.node);
            if moves(node, at) {
                stack.extend(node.output(0));
            } else {
                let other = node.input(1 - at.slot().min(1));
                is_read &= is_comparison(node.op()) && other.is_some_and(|v| is_size(graph, v));
            }
        }
        if !is_read {
            return false;
        }
    }
    true
}

/// Whether each element is computed from those of the inputs at its place.
fn is_arithmetic(op: &str) -> bool {
    matches!(
        op,
        "Add"
            | "Sub"
            | "Mul"
            | "Div"
            | "Mod"
            | "Neg"
            | "Abs"
            | "Sign"
            | "Floor"
            | "Ceil"
            | "Round"
            | "Min"
            | "Max"
            | "Clip"
            | "Not"
            | "And"
            | "Or"
            | "Xor"
            | "Where"
    )
}

/// The functions of one number that `is_elementwise` leaves out.
fn is_activation(op: &str) -> bool {
    matches!(
        op,
        "Log"
            | "Softplus"
            | "Softsign"
            | "Elu"
            | "Celu"
            | "Selu"
            | "LeakyRelu"
            | "PRelu"
            | "ThresholdedRelu"
            | "HardSigmoid"
            | "HardSwish"
            | "Gelu"
            | "Mish"
    )
}

fn is_comparison(op: &str) -> bool {
    matches!(
        op,
        "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual" | "Equal"
    )
}

/// Whether a value is computed from constants and sizes, and has no number for each place.
fn is_size(graph: &Graph, value: ValueId) -> bool {
    is_of_sizes_by(graph, value, computes_sizes)
}

fn computes_sizes(node: &Node) -> bool {
    let op = node.op();
    let picks = matches!(
        op,
        "Concat" | "ReduceProd" | "ReduceMax" | "Gather" | "Slice"
    );
    picks || is_arithmetic(op) || is_comparison(op) || is_copy(op) || is_layout(op)
}

/// Whether a value has the places of tokens: a range, or stored numbers 0, 1, ….
fn are_places(graph: &Graph, value: ValueId) -> bool {
    let counts_up = || {
        let stored = graph.constant(value)?;
        let numbers = (2..=MOST)
            .contains(&stored.len())
            .then(|| stored.to_f64s())??;
        let mut places = numbers.iter().zip(0..);
        Some(places.all(|(number, place)| *number == f64::from(place)))
    };
    is_range(graph, value) || counts_up() == Some(true)
}

/// Whether a value is computed from sizes alone, in a few steps, and differs by place.
fn is_of_places(graph: &Graph, value: ValueId) -> bool {
    let (counts, steps) = (Cell::new(false), Cell::new(0));
    let passes = |node: &Node| {
        let counts_up = matches!(node.op(), "Range" | "CumSum" | "NonZero");
        counts.set(counts.get() || counts_up);
        steps.set(steps.get() + 1);
        steps.get() <= FEW && (counts_up || node.is("ConstantOfShape") || computes_sizes(node))
    };
    are_places(graph, value) || is_of_sizes_by(graph, value, passes) && counts.get()
}

/// Whether a value is a range, through casts and changes of shape.
pub(super) fn is_range(graph: &Graph, value: ValueId) -> bool {
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

/// What a value that is computed from an input has of places of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Met {
    Nothing,
    /// Places were compared with the input, as a mask is.
    Compared,
    /// Places are beside the input in a number.
    Computed,
}

/// Whether places of tokens and this value together pick rows of a table of many, make angles, or make a bias that is
/// more than a mask.
pub(super) fn meets_places(graph: &Graph, value: ValueId) -> bool {
    let mut stack = vec![(value, Met::Nothing)];
    let mut seen = FxHashSet::default();
    while let Some((value, met)) = stack.pop() {
        if !seen.insert((value, met)) {
            continue;
        }
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            let table = picked(graph, node, at);
            let picks = table.is_some_and(|table| may_be_positions(graph, &[table]));
            let is_bias = node.is("Softmax") || bias_slots(node).contains(&at.slot());
            if met > Met::Nothing && (picks || node.is("Sin") || node.is("Cos"))
                || met == Met::Computed && is_bias
            {
                return true;
            }
            let op = node.op();
            let computes = is_arithmetic(op) || is_elementwise(op) || is_activation(op);
            let mut others = node.inputs().iter().flatten().filter(|v| **v != value);
            let has_places = others.any(|other| is_of_places(graph, *other));
            let met = match op {
                _ if !node.domain().is_empty() => continue,
                // What is added up along the tokens, or put at some of them, is one place after the other.
                "CumSum" if at.slot() == 0 => Met::Computed,
                "ScatterElements" | "ScatterND" => met.max(Met::Compared),
                "Concat" if has_places => Met::Computed,
                "Concat" => met,
                "Gather" if at.slot() == 1 && !is_table_of_numbers(graph, node) => continue,
                "Gather" => met,
                "Slice" | "Split" | "ReduceMax" | "ReduceMin" | "ReduceSum" | "ReduceMean"
                    if at.slot() == 0 =>
                {
                    met
                }
                // What is projected is no bias.
                "MatMul" | "Gemm" | "Einsum" if is_beside_constants(graph, node, at) => {
                    met.min(Met::Compared)
                }
                _ if is_comparison(op) && has_places => met.max(Met::Compared),
                _ if computes && has_places => Met::Computed,
                "Softmax" => met,
                _ if is_norm(node) && at.slot() == 0 => met,
                _ if moves(node, at) || is_comparison(op) || computes => met,
                _ => continue,
            };
            stack.extend(node.outputs().iter().flatten().map(|made| (*made, met)));
        }
    }
    false
}

/// Whether a table has integers or one number in each row, which may be offsets or scales, and no features.
fn is_table_of_numbers(graph: &Graph, node: &Node) -> bool {
    node.input(0).is_some_and(|table| {
        let is_int = graph.dtype(table).is_some_and(|dtype| dtype.is_int());
        let stored = graph.stored(table);
        stored.is_some_and(|stored| is_int || stored.dims.len() < 2)
    })
}
