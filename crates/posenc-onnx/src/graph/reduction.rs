//! The axes over which operators of the families `Reduce…` and `Arg…` run.

use posenc_ir::{Node, ValueId};

use super::lane::wrap;

/// The axes of an input of this rank over which a node runs; `numbers` reads those that are an input.
/// `None` where they are not known.
pub(crate) fn axes(
    node: &Node,
    rank: usize,
    numbers: impl FnOnce(ValueId) -> Option<Vec<i64>>,
) -> Option<Vec<usize>> {
    if node.op().starts_with("Arg") {
        return Some(vec![wrap(node.int("axis").ok()?.unwrap_or(0), rank)?]);
    }
    let given = match node.input(1) {
        Some(value) => numbers(value)?,
        None => node.ints("axes").ok()?.unwrap_or_default().to_vec(),
    };
    let keeps_all = node.int("noop_with_empty_axes").ok()?.unwrap_or(0) != 0;
    match given.is_empty() {
        false => given.iter().map(|axis| wrap(*axis, rank)).collect(),
        true if keeps_all => Some(vec![]),
        true => Some((0..rank).collect()),
    }
}
