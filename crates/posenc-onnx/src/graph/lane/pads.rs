//! What a `Pad` adds to each axis.

use posenc_ir::Node;
use posenc_ir::eval::Trace;

use super::wrap;

/// How many elements a `Pad` adds before and after each of so many axes, fewer than none where it cuts;
/// `None` where that is not known.
pub(crate) fn pads(node: &Node, trace: &Trace, rank: usize) -> Option<Vec<[i64; 2]>> {
    let list = |slot: usize| -> Option<Vec<i64>> {
        let known = trace.get(node.input(slot)?).to_i64()?;
        Some(known.iter().copied().collect())
    };
    let given = match node.input(1) {
        Some(_) => list(1)?,
        None => node.ints("pads").ok()??.to_vec(),
    };
    let axes: Vec<usize> = match node.input(3) {
        Some(_) => list(3)?
            .iter()
            .map(|a| wrap(*a, rank))
            .collect::<Option<_>>()?,
        None => (0..rank).collect(),
    };
    let count = axes.len();
    let mut pads = vec![[0, 0]; rank];
    for (i, axis) in axes.into_iter().enumerate() {
        pads[axis] = [*given.get(i)?, *given.get(count + i)?];
    }
    (given.len() == 2 * count).then_some(pads)
}
