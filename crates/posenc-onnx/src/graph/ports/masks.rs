//! Whether an input hides scores of attention.

use posenc_ir::{DType, Graph, Node, Use, ValueId};
use rustc_hash::FxHashSet;

use super::uses::{Step, has_before, is_beside_constants, moves, picks_causal_rows, reaches};
use crate::graph::operators::{bias_slots, is_copy, is_elementwise, is_layout};

/// Whether the value hides scores of attention, and does nothing else to them: it reaches a softmax, or an operator
/// of attention as its mask, and on every way to a softmax it is made true or false, or as large as hides a score.
/// Running sums of it count tokens. What is compared with itself in another order, or subtracted from it, tells
/// positions or sequences.
pub(super) fn masks_scores(graph: &Graph, value: ValueId) -> bool {
    let mut raw = FxHashSet::from_iter([value]);
    let (mut is_found, mut hidden) = (false, vec![]);
    let acts = reaches(graph, [value], |node, at| {
        let own = node
            .inputs()
            .iter()
            .flatten()
            .filter(|v| raw.contains(v))
            .count();
        match (node.domain(), node.op()) {
            ("", "Softmax") => return Step::Found,
            (
                "",
                "Sub" | "Equal" | "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual" | "Pow",
            ) if own > 1 => {
                return Step::Found;
            }
            _ => {}
        }
        if is_mask_of(graph, node, at) {
            is_found = true;
            return Step::Stop;
        }
        if hides(graph, node, at) || is_chosen_by(graph, node, &raw) {
            hidden.extend(node.outputs().iter().flatten());
            return Step::Stop;
        }
        if chooses(node, at) {
            raw.extend(node.outputs().iter().flatten());
            return Step::On;
        }
        Step::Stop
    });
    !acts && (is_found || reach_scores(graph, hidden))
}

/// Whether an operator makes numbers of a mask true or false, as large as hides a score, or a running sum.
fn hides(graph: &Graph, node: &Node, at: &Use) -> bool {
    /// No slope of a bias is as steep.
    const LARGE: f64 = 1e3;
    let is_large = |slot: usize| {
        let few = node
            .input(slot)
            .filter(|v| graph.stored(*v).is_some_and(|s| s.elements() == Some(1)));
        let number = few.and_then(|v| graph.constant(v)?.to_f64s()?.first().copied());
        number.is_some_and(|x| x.abs() >= LARGE)
    };
    match (node.domain(), node.op()) {
        ("", "CumSum") => at.slot() == 0,
        ("", "Not" | "And" | "Or" | "Xor") => true,
        ("", "Equal" | "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual") => {
            is_beside_constants(graph, node, at)
        }
        ("", "Where") => at.slot() == 0,
        ("", "Cast") => node.int("to") == Ok(Some(i64::from(DType::Bool.code()))),
        // Places of tokens that do not count are set to zero.
        ("", "Mul") => {
            let other = node.input(1 - at.slot());
            is_large(1 - at.slot()) || other.is_some_and(|other| has_before(graph, other, "CumSum"))
        }
        _ => false,
    }
}

/// Whether an operator chooses by what is computed from one of these values, as zeros stay where none is hidden.
fn is_chosen_by(graph: &Graph, node: &Node, values: &FxHashSet<ValueId>) -> bool {
    let mut condition = node.input(0).filter(|_| node.is("Where"));
    while let Some(value) = condition {
        if values.contains(&value) {
            return true;
        }
        let before = graph.producer(value).map(|(id, _)| graph.node(id));
        let before = before.filter(|node| {
            let is_logic = matches!(node.op(), "Not" | "Equal" | "Less" | "Greater");
            node.domain().is_empty() && (is_logic || is_copy(node.op()) || is_layout(node.op()))
        });
        condition = before.and_then(|node| node.input(0));
    }
    false
}

/// Whether rows that an operator picks are those of a mask.
fn picks_mask(graph: &Graph, node: &Node) -> bool {
    let rows = node.output(0);
    node.is("Gather") && picks_causal_rows(graph, node)
        || rows.is_some_and(|rows| masks_scores(graph, rows))
}

/// Whether what a mask hides follows from the numbers of an input: they are compared with others, as positions with
/// those of keys, or pick its rows.
pub(crate) fn decides_mask(graph: &Graph, value: ValueId) -> bool {
    reaches(graph, [value], |node, at| {
        match (node.domain(), node.op()) {
            ("", "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual") => Step::Found,
            ("", "Gather" | "GatherND") if at.slot() == 1 && picks_mask(graph, node) => Step::Found,
            ("", "Add" | "Sub") => Step::On,
            ("", "Gather" | "Slice" | "Split") if at.slot() == 0 => Step::On,
            _ if moves(node, at) => Step::On,
            _ => Step::Stop,
        }
    })
}

/// Whether one of these values reaches a softmax or the mask of an operator of attention.
fn reach_scores(graph: &Graph, values: Vec<ValueId>) -> bool {
    reaches(graph, values, |node, at| match (node.domain(), node.op()) {
        ("", "Softmax") => Step::Found,
        _ if is_mask_of(graph, node, at) => Step::Found,
        ("", "And" | "Or" | "Xor" | "Not" | "CumSum") => Step::On,
        ("", "Equal" | "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual") => Step::On,
        _ if chooses(node, at) => Step::On,
        _ => Step::Stop,
    })
}

/// Whether an operator of attention takes the value as its mask. Lengths of sequences are none, unless one is counted.
fn is_mask_of(graph: &Graph, node: &Node, at: &Use) -> bool {
    match (node.domain(), node.op(), at.slot()) {
        ("com.microsoft", "GroupQueryAttention", 5) => node
            .input(5)
            .is_some_and(|lengths| has_before(graph, lengths, "ReduceSum")),
        ("com.microsoft", "EmbedLayerNormalization", 7) => true,
        (_, _, slot) => bias_slots(node).contains(&slot),
    }
}

/// Whether an operator chooses among elements, or computes from each.
fn chooses(node: &Node, at: &Use) -> bool {
    let op = node.op();
    let is_first = at.slot() == 0;
    node.domain().is_empty()
        && match op {
            "ReduceSum" | "ReduceMax" | "ReduceMin" | "Gather" | "GatherND" | "GatherElements" => {
                is_first
            }
            "Slice" | "Split" | "Pad" | "Trilu" | "Div" => is_first,
            "ScatterND" | "ScatterElements" => at.slot() != 1,
            "Concat" | "IsInf" | "IsNaN" => true,
            _ => is_elementwise(op) || moves(node, at),
        }
}
