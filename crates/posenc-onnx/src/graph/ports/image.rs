//! The size of an image that a model leaves open: one for which its table of patches has a row
//! for each.

use posenc_ir::{Graph, Node, NodeId, ValueId};

use super::{Port, Role};
use crate::graph::operators::is_copy;

/// Class and register rows before those of patches are few.
const PREFIX: usize = 8;

/// The side of a square image for the first input that is one.
pub(crate) fn side(graph: &Graph, ports: &[Port]) -> Option<usize> {
    let image = |p: &&Port| p.role == Role::Content && p.dims.len() == 4;
    let first = ports.iter().find(image)?;
    let Patch { size, width } = patch(graph, first.value)?;
    let fitting = graph.values().filter_map(|v| grid(graph, v, width));
    size.checked_mul(fitting.min()?)
}

/// How an image is cut into patches.
struct Patch {
    /// Pixels on a side.
    size: usize,
    /// Features of each.
    width: usize,
}

/// The convolution that cuts an image, casts and scaling being passed.
fn patch(graph: &Graph, image: ValueId) -> Option<Patch> {
    let mut stack = vec![image];
    let mut seen = rustc_hash::FxHashSet::default();
    while let Some(value) = stack.pop() {
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            if node.is("Conv") && at.slot() == 0 {
                return cut(graph, node);
            }
            if passes(node) && seen.insert(at.node) {
                stack.extend(node.outputs().iter().flatten());
            }
        }
    }
    None
}

fn passes(node: &Node) -> bool {
    let op = node.op();
    node.domain().is_empty() && (is_copy(op) || matches!(op, "Add" | "Sub" | "Mul" | "Div"))
}

/// A convolution whose steps are as wide as its kernel.
fn cut(graph: &Graph, conv: &Node) -> Option<Patch> {
    let stored = graph.stored(conv.input(1)?)?;
    let [width, _, height, across] = stored.dims[..] else {
        return None;
    };
    let steps = conv.ints("strides").ok()??;
    let whole = steps.iter().all(|s| usize::try_from(*s) == Ok(height));
    (whole && height == across && height > 0).then_some(Patch {
        size: height,
        width,
    })
}

/// Patches on a side, if a value is a table of rows of this width that is added or gathered.
fn grid(graph: &Graph, table: ValueId, width: usize) -> Option<usize> {
    let rows = match graph.stored(table)?.dims[..] {
        [1, rows, columns] | [rows, columns] if columns == width => rows,
        _ => return None,
    };
    let acts = |id: NodeId, slot: usize| {
        let node = graph.node(id);
        node.is("Add") || node.is("Gather") && slot == 0
    };
    let used = graph.uses(table).iter().any(|u| acts(u.node, u.slot()));
    let square = |prefix: usize| {
        let patches = rows.checked_sub(prefix)?;
        let side = patches.isqrt();
        (side > 1 && side * side == patches).then_some(side)
    };
    used.then(|| (0..=PREFIX).find_map(square)).flatten()
}
