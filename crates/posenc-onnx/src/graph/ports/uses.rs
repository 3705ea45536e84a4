//! What an input is for, by the operators that its numbers reach.

use std::cmp::Ordering;

use posenc_ir::{DType, Graph, Node, Use, ValueId};
use rustc_hash::FxHashSet;

use crate::graph::lane::wrap;
use crate::graph::operators::{
    cache_slots, gather_axis, is_copy, is_layout, is_projection, is_rotary, is_write,
};

/// Nodes to look at behind a factor for a projection.
const MOST: usize = 256;

/// Nodes between an operator and what is computed closely behind it.
const FEW: usize = 16;

/// The fewest rows of a table that may be one of positions: no model takes so few tokens.
const FEWEST_POSITIONS: usize = 32;

/// What a walk does at an operator.
pub(super) enum Step {
    /// It ends: this is what it looks for.
    Found,
    /// It goes on to the outputs.
    On,
    /// It goes no further this way.
    Stop,
}

/// Whether a walk from these values finds what it looks for.
pub(super) fn reaches(
    graph: &Graph,
    from: impl IntoIterator<Item = ValueId>,
    mut step: impl FnMut(&Node, &Use) -> Step,
) -> bool {
    let (mut stack, mut seen) = (Vec::from_iter(from), FxHashSet::default());
    while let Some(value) = stack.pop() {
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            match step(node, at) {
                Step::Found => return true,
                Step::On if seen.insert(at.node) => stack.extend(node.outputs().iter().flatten()),
                Step::On | Step::Stop => {}
            }
        }
    }
    false
}

/// Whether an operator passes the elements of its first input on.
pub(super) fn moves(node: &Node, at: &Use) -> bool {
    node.domain().is_empty() && at.slot() == 0 && (is_copy(node.op()) || is_layout(node.op()))
}

/// Whether an operator makes other indices of an index: moved, chosen, or beside constants, as ids from the end are
/// made ids from the beginning.
fn indexes(graph: &Graph, node: &Node, at: &Use) -> bool {
    moves(node, at)
        || node.domain().is_empty()
            && match node.op() {
                "Where" => at.slot() > 0,
                "Slice" => at.slot() == 0,
                "Add" | "Sub" | "Clip" | "Max" | "Min" => is_beside_constants(graph, node, at),
                _ => false,
            }
}

/// Whether all other inputs of a node are constants.
pub(super) fn is_beside_constants(graph: &Graph, node: &Node, at: &Use) -> bool {
    let mut others = (0..node.inputs().len()).filter(|slot| *slot != at.slot());
    let is_stored = |other| graph.stored(other).is_some();
    others.all(|slot| node.input(slot).is_none_or(is_stored))
}

/// The tables of learned or quantized numbers that a value picks rows of, with the axis of rows.
pub(super) fn picked_tables(graph: &Graph, value: ValueId) -> Vec<(ValueId, usize)> {
    let mut all = vec![];
    reaches(graph, [value], |node, at| match picked(graph, node, at) {
        Some(table) => {
            all.push(table);
            Step::Stop
        }
        None if indexes(graph, node, at) => Step::On,
        None => Step::Stop,
    });
    all
}

/// Whether one of these tables has as many rows as one of positions.
pub(super) fn may_be_positions(graph: &Graph, tables: &[(ValueId, usize)]) -> bool {
    rows(graph, tables).any(|rows| rows.is_none_or(|n| n >= FEWEST_POSITIONS))
}

/// The rows of each of these tables, by the axis of rows; `None` where they are not stored.
pub(super) fn rows<'a>(
    graph: &'a Graph,
    tables: &'a [(ValueId, usize)],
) -> impl Iterator<Item = Option<usize>> + 'a {
    let rows = |(table, axis): &(ValueId, usize)| graph.stored(*table)?.dims.get(*axis).copied();
    tables.iter().map(rows)
}

/// The table that a use picks rows of.
pub(super) fn picked(graph: &Graph, node: &Node, at: &Use) -> Option<(ValueId, usize)> {
    let (slot, axis) = match (node.domain(), node.op(), at.slot()) {
        ("", "Gather", 1) | ("com.microsoft", "GatherBlockQuantized", 1) => (0, gather_axis(node)?),
        ("", "GatherND", 1) => (0, 0),
        ("com.microsoft", "EmbedLayerNormalization", 0) => (2, 0),
        ("com.microsoft", "EmbedLayerNormalization", 1) => (4, 0),
        ("com.microsoft", "EmbedLayerNormalization", 8) => (3, 0),
        _ => return None,
    };
    let table = node.input(slot)?;
    let dtype = graph.dtype(table)?;
    let small = [DType::I8, DType::U8, DType::I4, DType::U4];
    let rank = graph.stored(table).map_or(2, |stored| stored.dims.len());
    (dtype.is_float() || small.contains(&dtype)).then_some((table, wrap(axis, rank)?))
}

/// Whether an operator is closely before a value, through sums, casts and changes of shape.
pub(super) fn has_before(graph: &Graph, mut value: ValueId, op: &str) -> bool {
    for _ in 0..FEW {
        let Some((id, _)) = graph.producer(value) else {
            return false;
        };
        let node = graph.node(id);
        let passes = matches!(
            node.op(),
            "Sub" | "Add" | "Cast" | "Identity" | "Squeeze" | "Unsqueeze" | "Reshape"
        );
        match node.input(0).filter(|_| node.domain().is_empty()) {
            Some(_) if node.op() == op => return true,
            Some(before) if passes => value = before,
            _ => return false,
        }
    }
    false
}

/// Whether angles are computed from the value: it reaches a sine or cosine through casts, changes
/// of shape and arithmetic, and is no index on that path. Other operators end the search.
pub(super) fn feeds_sines(graph: &Graph, value: ValueId) -> bool {
    reaches(graph, [value], |node, at| {
        match (node.domain(), node.op()) {
            ("", "Sin" | "Cos") => Step::Found,
            // A mask sets positions that are counted from it to zero.
            ("", "Mul") => {
                let other = node.input(1 - at.slot());
                match other.is_some_and(|other| has_before(graph, other, "CumSum")) {
                    true => Step::Stop,
                    false => Step::On,
                }
            }
            ("", "Add" | "Sub" | "Div" | "MatMul" | "Einsum" | "Concat") => Step::On,
            _ if moves(node, at) => Step::On,
            _ => Step::Stop,
        }
    })
}

/// The sines and cosines that are computed from the value.
fn waves(graph: &Graph, value: ValueId) -> Vec<ValueId> {
    let mut waves = vec![];
    reaches(graph, [value], |node, at| {
        match (node.domain(), node.op()) {
            ("", "Sin" | "Cos") => {
                waves.extend(node.output(0));
                Step::Stop
            }
            ("", "Mul" | "Add" | "Sub" | "Div" | "MatMul" | "Einsum" | "Concat") => Step::On,
            _ if moves(node, at) => Step::On,
            _ => Step::Stop,
        }
    });
    waves
}

/// Whether sines or cosines that are computed from the value are what weights multiply first, as those of a step of a
/// process are: no rotation, and no rows that are added to tokens.
pub(super) fn feeds_weighted_sines(graph: &Graph, value: ValueId) -> bool {
    reaches(graph, waves(graph, value), |node, at| {
        match (node.domain(), node.op()) {
            _ if is_projection(node) && at.slot() == 0 => {
                let is_weight = |other: &ValueId| !is_behind_inputs(graph, *other);
                match node.inputs().iter().skip(1).flatten().all(is_weight) {
                    true => Step::Found,
                    false => Step::Stop,
                }
            }
            ("", "Concat" | "Neg" | "Slice") => Step::On,
            ("", "Mul" | "Add") if is_beside_constants(graph, node, at) => Step::On,
            _ if moves(node, at) => Step::On,
            _ => Step::Stop,
        }
    })
}

/// Whether sines or cosines that are computed from the value multiply what weights make of something else, as those
/// of angles do.
pub(super) fn feeds_rotation(graph: &Graph, value: ValueId) -> bool {
    let waves = waves(graph, value);
    let mut own: FxHashSet<ValueId> = waves.iter().copied().collect();
    reaches(graph, waves, |node, at| {
        let other = node.input(1 - at.slot().min(1));
        let goes_on = match (node.domain(), node.op()) {
            _ if is_rotary(node) && at.slot() > 0 => return Step::Found,
            ("", "Mul") if is_beside_constants(graph, node, at) => true,
            ("", "Mul") if other.is_some_and(|v| !own.contains(&v) && is_projected(graph, v)) => {
                return Step::Found;
            }
            ("", "Concat" | "Neg" | "Slice" | "Split" | "Gather") => true,
            _ => moves(node, at),
        };
        match goes_on {
            true => {
                own.extend(node.outputs().iter().flatten());
                Step::On
            }
            false => Step::Stop,
        }
    })
}

/// Whether an operator takes the value as positions.
pub(super) fn is_position(graph: &Graph, value: ValueId) -> bool {
    reaches(graph, [value], |node, at| {
        match (node.domain(), node.op(), at.slot()) {
            ("com.microsoft", "RotaryEmbedding" | "MRotaryEmbedding", 1)
            | ("com.microsoft", "GroupQueryAttention", 9)
            | ("com.microsoft", "EmbedLayerNormalization", 8)
            | ("", "RotaryEmbedding", 3) => Step::Found,
            ("", "Gather", 1) if picks_causal_rows(graph, node) => Step::Found,
            _ if indexes(graph, node, at) => Step::On,
            _ => Step::Stop,
        }
    })
}

/// The most numbers of a mask that are looked at.
const MOST_NUMBERS: usize = 1 << 24;

/// Whether a `Gather` picks rows of a stored mask in which every token sees itself and none behind it.
pub(super) fn picks_causal_rows(graph: &Graph, node: &Node) -> bool {
    let mask = node.input(0);
    let Some((mask, stored)) = mask.and_then(|mask| Some((mask, graph.stored(mask)?))) else {
        return false;
    };
    let dims = &stored.dims;
    let axis = gather_axis(node).and_then(|axis| wrap(axis, dims.len()));
    let (Some(axis), Some(n)) = (axis, dims.last().copied()) else {
        return false;
    };
    let elements = stored.elements().filter(|all| *all <= MOST_NUMBERS);
    let is_square = axis + 1 < dims.len() && dims[axis] == n && n > 1;
    if !is_square || elements != n.checked_mul(n) {
        return false;
    }
    let Some(numbers) = graph.constant(mask) else {
        return false;
    };
    let [seen, hidden] = [0, 1].map(|at| numbers.get_f64(at));
    let is_own = |at: usize| {
        let x = numbers.get_f64(at);
        match (at % n).cmp(&(at / n)) {
            Ordering::Less => x == seen || x == hidden,
            Ordering::Equal => x == seen,
            Ordering::Greater => x == hidden,
        }
    };
    seen.is_some() && seen != hidden && (0..n * n).all(is_own)
}

/// Whether all rows that the value picks are angles, or cosines and sines: rows of two tables, or the halves of
/// those of one, that multiply several of what weights have made and do nothing else.
pub(super) fn picks_factors(graph: &Graph, value: ValueId) -> bool {
    picks_factors_of(graph, value, true)
}

/// The same of stored cosines and sines alone: angles may be made of the rows of ids too.
pub(super) fn picks_waves(graph: &Graph, value: ValueId) -> bool {
    picks_factors_of(graph, value, false)
}

fn picks_factors_of(graph: &Graph, value: ValueId, are_angles: bool) -> bool {
    let mut factors = 0;
    let picks_others = reaches(graph, [value], |node, at| {
        match (node.domain(), node.op(), at.slot(), node.output(0)) {
            ("", "Gather" | "GatherND" | "GatherElements", 1, Some(rows)) => {
                let parts = match feeds_sines(graph, rows) {
                    true => are_angles.then_some(2),
                    false => scale_content(graph, rows),
                };
                factors += parts.unwrap_or_default();
                match parts {
                    Some(_) => Step::Stop,
                    None => Step::Found,
                }
            }
            _ if picked(graph, node, at).is_some() => Step::Found,
            _ if indexes(graph, node, at) => Step::On,
            _ => Step::Stop,
        }
    });
    factors > 1 && !picks_others
}

/// The fewest products of cosines, with the queries and the keys.
const FEWEST_PRODUCTS: usize = 2;

/// In how many parts rows of a table multiply several of what weights have made; `None` where they do something else.
fn scale_content(graph: &Graph, rows: ValueId) -> Option<usize> {
    let (mut products, mut parts) = (0, 1);
    let does_more = reaches(graph, [rows], |node, at| match (node.domain(), node.op()) {
        _ if is_rotary(node) && at.slot() > 0 => {
            products += FEWEST_PRODUCTS;
            Step::Stop
        }
        ("", "Mul" | "Div") if is_beside_constants(graph, node, at) => Step::On,
        ("", "Mul")
            if node
                .input(1 - at.slot())
                .is_some_and(|other| is_projected(graph, other)) =>
        {
            products += 1;
            Step::Stop
        }
        ("", "Concat") => Step::On,
        ("", "Shape") => Step::Stop,
        ("", "Slice" | "Split" | "Gather") if at.slot() == 0 => {
            parts = 2;
            Step::On
        }
        _ if moves(node, at) => Step::On,
        _ => Step::Found,
    });
    (products >= FEWEST_PRODUCTS && !does_more).then_some(parts)
}

/// Whether the elements of a value are computed from a projection nearby.
fn is_projected(graph: &Graph, value: ValueId) -> bool {
    is_behind(graph, value, is_projection)
}

/// Whether a value may follow from inputs: a weight does not, nor what is made of one in a few steps.
fn is_behind_inputs(graph: &Graph, value: ValueId) -> bool {
    let (mut stack, mut seen) = (vec![value], FxHashSet::default());
    while let Some(value) = stack.pop() {
        match graph.producer(value) {
            _ if graph.stored(value).is_some() => {}
            Some((id, _)) if seen.len() < FEW => {
                if seen.insert(id) {
                    stack.extend(graph.node(id).inputs().iter().flatten());
                }
            }
            _ => return true,
        }
    }
    false
}

/// Whether an operator like this is nearby before a value.
pub(super) fn is_behind(graph: &Graph, value: ValueId, is: impl Fn(&Node) -> bool) -> bool {
    let (mut stack, mut seen) = (vec![value], FxHashSet::default());
    while let Some(value) = stack.pop() {
        let Some((id, _)) = graph.producer(value) else {
            continue;
        };
        let node = graph.node(id);
        if is(node) {
            return true;
        }
        if !node.is("Shape") && seen.len() < MOST && seen.insert(id) {
            stack.extend(node.inputs().iter().flatten());
        }
    }
    false
}

/// Whether an operator writes other numbers into its first input.
fn writes(node: &Node, at: &Use) -> bool {
    is_write(node) && at.slot() == 0
}

/// Whether new keys or values are appended to the value or written into it: all that reads it, after changes of its
/// layout, is a concatenation that it comes first in, what writes something that weights have made into it, an
/// operator of attention that takes caches, or its shape. Three axes are those of sequences of features too, which are
/// a cache where weights make what is appended.
pub(super) fn is_cache(graph: &Graph, value: ValueId, rank: usize) -> bool {
    let picks = |node: &Node| {
        let table = node.input(0).filter(|_| node.is("Gather"));
        table
            .and_then(|table| graph.stored(table))
            .is_some_and(|table| table.dims.len() > 1)
    };
    let is_made = |node: &Node| is_projection(node) || picks(node);
    let (mut stack, mut seen, mut is_joined) = (vec![value], FxHashSet::default(), false);
    while let Some(value) = stack.pop() {
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            let takes = cache_slots(node).contains(&at.slot())
                || node.is("Concat")
                    && at.slot() == 0
                    && (rank > 3 || joins(graph, node, at, is_made))
                || writes(node, at)
                    && node
                        .input(2)
                        .is_some_and(|new| is_behind(graph, new, is_made));
            match node.op() {
                _ if takes => is_joined = true,
                "Shape" => {}
                _ if !(moves(node, at) || is_part(node, at) || is_stored(node, at)) => {
                    return false;
                }
                _ if seen.insert(at.node) => stack.extend(node.outputs().iter().flatten()),
                _ => {}
            }
        }
    }
    is_joined
}

/// Whether an operator gives the numbers that its first input stores as integers.
fn is_stored(node: &Node, at: &Use) -> bool {
    node.is("DequantizeLinear") && at.slot() == 0
}

/// Whether an operator picks a part of its first input.
fn is_part(node: &Node, at: &Use) -> bool {
    node.domain().is_empty() && matches!(node.op(), "Gather" | "Split" | "Slice") && at.slot() == 0
}

/// Whether a concatenation joins what comes from an operator like this.
fn joins(graph: &Graph, node: &Node, at: &Use, is: impl Fn(&Node) -> bool) -> bool {
    let all = node.inputs().iter().enumerate();
    let mut others = all.filter_map(|(slot, value)| value.filter(|_| slot != at.slot()));
    others.any(|other| is_behind(graph, other, &is))
}

/// Whether the value has features of tokens, as weights meet them: some projection reads it, beside nothing that
/// weights have made, as keys and values are.
pub(super) fn are_features(graph: &Graph, value: ValueId) -> bool {
    reaches(graph, [value], |node, at| match node.op() {
        _ if is_projection(node) && at.slot() == 0 => Step::Found,
        "Concat" if !joins(graph, node, at, is_projection) => Step::On,
        _ if moves(node, at) || is_part(node, at) => Step::On,
        _ => Step::Stop,
    })
}
