//! Where rows of a table are picked by distance, and by which operations a distance becomes a row.

use posenc_ir::{NodeId, Use, ValueId};

use super::numbers::Step;
use crate::attention::scores::entries;
use crate::detect::context::Context;
use crate::detect::distances::are_distances;
use crate::detect::finding::{Encoding, Finding};
use crate::detect::may_bias;
use crate::graph::dataflow::Class;
use crate::graph::lane::wrap;
use crate::graph::region::ancestors;

/// No table has a row so far away; sums of such numbers fit.
const FARTHEST: u64 = 1 << 40;

/// A node that picks rows of a table.
pub(super) struct Picked {
    pub(super) node: NodeId,
    /// The table, as the node reads it.
    pub(super) table: ValueId,
    /// The axis of its rows.
    pub(super) axis: usize,
    pub(super) rows: usize,
    /// From the distance to the row; of a node that cuts a table, from the length to either end.
    pub(super) ways: Vec<Way>,
}

impl Picked {
    /// Where the numbers on the ways are read.
    pub(super) fn reads(&self) -> impl Iterator<Item = Use> {
        self.ways.iter().flat_map(|way| way.reads.iter().copied())
    }
}

/// The way to a row number.
pub(super) struct Way {
    pub(super) steps: Vec<Step>,
    /// Where the results of the steps are read, in their order: the last by the node that picks.
    pub(super) reads: Vec<Use>,
}

/// The nodes that pick rows for a finding, in the order of the graph.
///
/// # Errors
/// With the node, where it is not known which row a distance has.
pub(super) fn picked(
    context: &Context<'_>,
    finding: &Finding,
) -> Result<Vec<Picked>, (NodeId, &'static str)> {
    let graph = context.graph();
    let entering = places(context, finding).into_iter();
    let entering = entering.filter_map(|at| graph.node(at.node).input(at.slot()));
    let above = ancestors(graph, &context.found.classes, entering.collect());
    let mut nodes: Vec<NodeId> = above
        .iter()
        .filter_map(|value| Some(graph.producer(*value)?.0))
        .collect();
    nodes.sort_unstable();
    nodes.dedup();
    let of_node = |id| match finding.encoding {
        Encoding::TransformerXl(_) => cut(context, id),
        _ => gathered(context, id),
    };
    nodes.into_iter().filter_map(of_node).collect()
}

/// Where a finding enters at all of its sites.
fn places(context: &Context<'_>, finding: &Finding) -> Vec<Use> {
    let (graph, found) = (context.graph(), context.found);
    if !matches!(finding.encoding, Encoding::ScoreBias(..)) {
        return finding.entries.clone();
    }
    let of_site = |site: &usize| entries(graph, &found.classes, &found.trace, context.site(*site));
    let mut places: Vec<Use> = finding.sites.iter().flat_map(of_site).collect();
    // Masks that enter by themselves stay.
    places.retain(|at| may_bias(graph, &found.trace, *at));
    places
}

/// Rows that a node picks by an index that follows positions; `None` for other nodes.
fn gathered(context: &Context<'_>, id: NodeId) -> Option<Result<Picked, (NodeId, &'static str)>> {
    let node = context.graph().node(id);
    let (table, index) = (node.input(0)?, node.input(1)?);
    let follows = |value| context.found.classes.of_value(value).has(Class::POSITION);
    let is_table = follows(index) && is_table(context, table);
    if !is_table || !matches!(node.op(), "Gather" | "GatherElements" | "GatherND") {
        return None;
    }
    let refuse = |why| Some(Err((id, why)));
    let dims = context.dims(table)?;
    let axis = node.int("axis").ok()?.unwrap_or(0);
    let Some(axis) = wrap(axis, dims.len()).filter(|_| node.is("Gather")) else {
        return refuse("rows of distances are picked here in a way that is not supported yet");
    };
    let is_source = |value| are_distances(context, value);
    let Some(way) = way(context, Use::new(id, 1), index, &is_source) else {
        return refuse("how a row follows from the distance here is not known");
    };
    Some(Ok(Picked {
        node: id,
        table,
        axis,
        rows: dims[axis],
        ways: vec![way],
    }))
}

/// Rows that a node cuts out of a table by the length; `None` for other nodes.
fn cut(context: &Context<'_>, id: NodeId) -> Option<Result<Picked, (NodeId, &'static str)>> {
    let node = context.graph().node(id);
    let table = node.input(0)?;
    let (start, end) = (node.input(1)?, node.input(2)?);
    let has_length = |value| context.found.classes.of_value(value).has(Class::LENGTH);
    if !node.is("Slice") || !is_table(context, table) || !has_length(start) && !has_length(end) {
        return None;
    }
    let refuse = |why| Some(Err((id, why)));
    let dims = context.dims(table)?;
    let cut = context.dims(node.output(0)?)?;
    let mut axes = (0..dims.len()).filter(|axis| dims[*axis] != cut[*axis]);
    let (Some(axis), None) = (axes.next(), axes.next()) else {
        return refuse("the table of distances is cut here in a way that is not supported yet");
    };
    // A table of distances has a row for each of both signs, and one for 0.
    let tokens = cut[axis].div_ceil(2);
    let ways = [(1, start), (2, end)].map(|(slot, value)| {
        let is_source = |value| is_length(context, value) || is_quotient(context, value, tokens);
        way(context, Use::new(id, slot), value, &is_source)
    });
    let [Some(start), Some(end)] = ways else {
        return refuse("how the rows follow from the length here is not known");
    };
    Some(Ok(Picked {
        node: id,
        table,
        axis,
        rows: dims[axis],
        ways: vec![start, end],
    }))
}

/// Whether a value is a table of numbers, the same in every run.
fn is_table(context: &Context<'_>, value: ValueId) -> bool {
    let known = context.found.trace.get(value);
    known.dtype.is_some_and(|dtype| dtype.is_float())
        && context.found.classes.of_value(value).is_constant()
        && known.elements().is_some_and(|n| n > 1)
}

/// Whether a value is a number of tokens, or of what they are made of.
fn is_length(context: &Context<'_>, value: ValueId) -> bool {
    let made = context.graph().producer(value);
    let is_step = made.is_some_and(|(id, _)| {
        let op = context.graph().node(id).op();
        matches!(
            op,
            "Add" | "Sub" | "Neg" | "Mul" | "Div" | "Mod" | "Min" | "Max" | "Clip" | "Where"
        )
    });
    let known = context.found.trace.get(value);
    !is_step
        && known.elements() == Some(1)
        && context.found.classes.of_value(value).has(Class::LENGTH)
        && !passes(context, value)
}

/// Whether a value is this number of tokens, as a quotient: each token stands for several elements of an input.
fn is_quotient(context: &Context<'_>, value: ValueId, tokens: usize) -> bool {
    let made = context.graph().producer(value);
    let is_div = made.is_some_and(|(id, _)| context.graph().node(id).is("Div"));
    let number = context.found.trace.get(value).scalar_i64();
    is_div
        && number.and_then(|n| usize::try_from(n).ok()) == Some(tokens)
        && context.found.classes.of_value(value).has(Class::LENGTH)
}

/// Whether an operator gives its input as it is, in another shape or type.
fn passes(context: &Context<'_>, value: ValueId) -> bool {
    let graph = context.graph();
    graph.producer(value).is_some_and(|(id, _)| {
        let node = graph.node(id);
        let is_plain = node.domain().is_empty();
        is_plain
            && matches!(
                node.op(),
                "Cast"
                    | "Expand"
                    | "Identity"
                    | "Reshape"
                    | "Squeeze"
                    | "Tile"
                    | "Transpose"
                    | "Unsqueeze"
            )
    })
}

/// The way to a value that is read at a place; `None` where an operation on it is not known.
fn way(
    context: &Context<'_>,
    at: Use,
    value: ValueId,
    is_source: &dyn Fn(ValueId) -> bool,
) -> Option<Way> {
    let graph = context.graph();
    let (mut steps, mut reads) = (vec![], vec![]);
    let (mut at, mut value) = (at, value);
    while !is_source(value) {
        reads.push(at);
        let (id, _) = graph.producer(value)?;
        let before = match passes(context, value) {
            true => {
                steps.push(Step::Same { node: id });
                0
            }
            false => step(context, id, &mut steps)?,
        };
        (at, value) = (Use::new(id, before), graph.node(id).input(before)?);
    }
    steps.reverse();
    reads.reverse();
    Some(Way { steps, reads })
}

/// Adds what a node does to numbers, the last of it first, and returns the operand that it does it to.
fn step(context: &Context<'_>, id: NodeId, steps: &mut Vec<Step>) -> Option<usize> {
    let node = context.graph().node(id);
    if !node.domain().is_empty() {
        return None;
    }
    let constant = |slot: usize| {
        let value = node.input(slot)?;
        let is_constant = context.found.classes.of_value(value).is_constant();
        let number = context.found.trace.get(value).scalar_i64();
        number.filter(|n| is_constant && n.unsigned_abs() <= FARTHEST)
    };
    let offset = |slot, sign| {
        let number = constant(slot)?;
        let at = Use::new(id, slot);
        Some(Step::Offset { at, sign, number })
    };
    let bound = |slot, is_upper| {
        let number = constant(slot)?;
        let at = Use::new(id, slot);
        Some(Step::Bound {
            at,
            number,
            is_upper,
        })
    };
    let turn = Step::Turn { node: id };
    // Of two operands, the one that is no constant.
    let of_two = || match (constant(0), constant(1)) {
        (None, Some(_)) => Some((0, 1)),
        (Some(_), None) => Some((1, 0)),
        _ => None,
    };
    match node.op() {
        "Neg" => {
            steps.push(turn);
            Some(0)
        }
        "Add" => {
            let (moved, other) = of_two()?;
            steps.push(offset(other, 1)?);
            Some(moved)
        }
        "Sub" => {
            let (moved, other) = of_two()?;
            steps.push(offset(other, if moved == 0 { -1 } else { 1 })?);
            steps.extend((moved == 1).then_some(turn));
            Some(moved)
        }
        "Mul" => {
            let (moved, other) = of_two()?;
            match constant(other)? {
                1 => steps.push(Step::Same { node: id }),
                -1 => steps.push(turn),
                _ => return None,
            }
            Some(moved)
        }
        "Min" | "Max" if node.inputs().len() == 2 => {
            let (moved, other) = of_two()?;
            steps.push(bound(other, node.is("Min"))?);
            Some(moved)
        }
        "Clip" => {
            let before = steps.len();
            for (slot, is_upper) in [(2, true), (1, false)] {
                if node.input(slot).is_some() {
                    steps.push(bound(slot, is_upper)?);
                }
            }
            (steps.len() > before).then_some(0)
        }
        _ => None,
    }
}
