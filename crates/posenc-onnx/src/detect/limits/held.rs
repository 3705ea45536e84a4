//! Cuts of a table that stay within it, because they and the rows that are picked from them are held.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Node, ValueId};
use rustc_hash::FxHashSet;

use super::longer::Longer;
use crate::graph::lane::wrap;
use crate::graph::operators::{is_copy, is_layout};

/// The most nodes to look at behind a cut, and before an index.
const MOST: usize = 1024;

/// Whether a `Slice` of a constant of so many rows, and what picks from what it cuts, stay within these rows though
/// sequences are longer than `length`.
pub(super) fn stays(longer: &mut Longer<'_>, cut: &Node, rows: usize, length: usize) -> bool {
    let graph = longer.runs.model.graph();
    [length, 2 * length].into_iter().all(|tokens| {
        let trace = longer.beyond(tokens);
        trace.is_some_and(|trace| is_within(trace, cut, rows) && picks_within(graph, trace, cut))
    })
}

/// Whether a cut asks for no row that is not there, which it leaves out else.
fn is_within(trace: &Trace, cut: &Node, rows: usize) -> bool {
    let place = |slot: usize| trace.get(cut.input(slot)?).scalar_i64();
    match (place(1), place(2)) {
        (Some(from), Some(to)) => from >= 0 && usize::try_from(to).is_ok_and(|to| to <= rows),
        _ => false,
    }
}

/// Whether all that is computed of a cut is read by nodes that pick rows of it, and all of these are there.
fn picks_within(graph: &Graph, trace: &Trace, cut: &Node) -> bool {
    let mut stack: Vec<ValueId> = cut.outputs().iter().flatten().copied().collect();
    let mut seen = FxHashSet::default();
    let mut picks = 0;
    while let Some(value) = stack.pop() {
        if graph.uses(value).is_empty() || seen.len() > MOST {
            return false;
        }
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            if matches!(node.op(), "Shape" | "Size") || !seen.insert(at.node) {
                continue;
            }
            if node.is("Softmax") {
                return false;
            }
            if matches!(node.op(), "Gather" | "GatherElements") {
                if at.slot() != 0 || !is_there(graph, trace, node) {
                    return false;
                }
                picks += 1;
                continue;
            }
            stack.extend(node.outputs().iter().flatten());
        }
    }
    picks > 0
}

/// Whether all indices of a node that picks are within what it picks from.
fn is_there(graph: &Graph, trace: &Trace, node: &Node) -> bool {
    let size = || {
        let dims = trace.get(node.input(0)?).dims.as_deref()?;
        let axis = node.int("axis").ok()?.unwrap_or(0);
        i64::try_from(*dims.get(wrap(axis, dims.len())?)?).ok()
    };
    let Some((size, indices)) = size().zip(node.input(1)) else {
        return false;
    };
    match trace.get(indices).to_i64() {
        Some(indices) => indices.iter().all(|index| (0..size).contains(index)),
        None => bounds(graph, trace, indices)
            .is_some_and(|[least, most]| 0 <= least && least <= most && most < size),
    }
}

/// Bounds that the last operators hold integers within, where these are too many to be computed.
fn bounds(graph: &Graph, trace: &Trace, mut value: ValueId) -> Option<[i64; 2]> {
    let (mut least, mut most) = (None, None);
    let scalar = |value: Option<ValueId>| trace.get(value?).scalar_i64();
    for _ in 0..MOST {
        if let (Some(least), Some(most)) = (least, most) {
            return Some([least, most]);
        }
        let (id, _) = graph.producer(value)?;
        let node = graph.node(id);
        let (first, second) = (node.input(0), node.input(1));
        value = match node.op() {
            "Clip" => {
                least = least.max(scalar(second));
                most = [most, scalar(node.input(2))].into_iter().flatten().min();
                first?
            }
            "Max" | "Min" if node.inputs().len() == 2 => {
                let (bound, rest) = match (scalar(first), scalar(second)) {
                    (None, Some(bound)) => (bound, first?),
                    (Some(bound), None) => (bound, second?),
                    _ => return None,
                };
                match node.op() {
                    "Max" => least = least.max(Some(bound)),
                    _ => most = Some(most.map_or(bound, |most: i64| most.min(bound))),
                }
                rest
            }
            op if is_copy(op) || is_layout(op) || op == "Expand" => first?,
            _ => return None,
        };
    }
    None
}
