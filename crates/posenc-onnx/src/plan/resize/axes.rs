//! Which axes of what a node computes follow the image.

use posenc_ir::NodeId;

use super::walk::Walk;
use crate::graph::extent::{Extent, regrouped};
use crate::graph::lane::wrap;
use crate::graph::operators::is_reshape;
use crate::graph::product::Letters;
use crate::graph::reduction;

impl Walk<'_> {
    /// The axes of what a node computes, `old` and `new` being its sizes, and whether they follow from what
    /// the node does. `place` is that of the output.
    pub(super) fn axes_of(
        &self,
        (id, place): (NodeId, usize),
        old: &[usize],
        new: &[usize],
    ) -> (Vec<Extent>, bool) {
        let sizes = || old.iter().zip(new);
        let fits = |axes: &Vec<Extent>| {
            let pairs = axes.iter().zip(sizes());
            axes.len() == old.len()
                && pairs
                    .into_iter()
                    .all(|(a, (o, n))| (a.before(), a.after()) == (*o, *n))
        };
        if let Some(own) = self.moved((id, place), old).filter(fits) {
            return (own, true);
        }
        // Axes are those of an input, counted from the last, or others of the same sizes.
        let inputs = 0..self.context.graph().node(id).inputs().len();
        let inputs: Vec<Vec<Extent>> = inputs.filter_map(|slot| self.axes_in(id, slot)).collect();
        let axis = |(at, (old, new)): (usize, (&usize, &usize))| {
            let behind = sizes().len() - at;
            let aligned = inputs
                .iter()
                .filter_map(|own| own.get(own.len().checked_sub(behind)?));
            let mut same =
                aligned.filter(|a| a.changes() && (a.before(), a.after()) == (*old, *new));
            let plain = || Extent::One {
                old: *old,
                new: *new,
            };
            same.next().cloned().unwrap_or_else(plain)
        };
        (sizes().enumerate().map(axis).collect(), false)
    }

    /// The axes of what a node moves, joins or multiplies; `None` for other nodes.
    fn moved(&self, (id, place): (NodeId, usize), old: &[usize]) -> Option<Vec<Extent>> {
        let graph = self.context.graph();
        let node = graph.node(id);
        if let Some(letters) = Letters::of(graph, &self.context.found.trace, id) {
            let [a, b] = [self.axes_in(id, 0)?, self.axes_in(id, 1)?];
            let named = |letter: &char| {
                let own = |axes: &[Extent], names: &[char]| {
                    axes.get(names.iter().position(|n| n == letter)?).cloned()
                };
                let own = [own(&a, &letters.operands[0]), own(&b, &letters.operands[1])];
                let mut own = own.into_iter().flatten();
                let first = own.next()?;
                // A batch of one is broadcast.
                Some(
                    own.find(|other| other.changes() || first.before() == 1)
                        .unwrap_or(first),
                )
            };
            return letters.result.iter().map(named).collect();
        }
        if !node.domain().is_empty() {
            return None;
        }
        let first = self.axes_in(id, 0)?;
        match node.op() {
            "Transpose" => {
                let rank = first.len();
                let order: Vec<usize> = match node.ints("perm").ok()? {
                    Some(perm) => perm.iter().map(|a| wrap(*a, rank)).collect::<Option<_>>()?,
                    None => (0..rank).rev().collect(),
                };
                Some(order.into_iter().map(|a| first[a].clone()).collect())
            }
            op if is_reshape(op) => regrouped(&first, old),
            "Gather" => self.picked(id, &first),
            op if op.starts_with("Reduce") || matches!(op, "ArgMax" | "ArgMin") => {
                self.reduced(id, &first)
            }
            "Split" => self.split_part(id, place, &first),
            "Concat" => self.rolled(id).or_else(|| self.joined(id, old.len())),
            "Slice" => {
                let pairs = first.iter().zip(old).enumerate();
                let cut = |(axis, (extent, old)): (usize, (&Extent, &usize))| {
                    self.sliced_part(id, axis, extent)
                        .or_else(|| self.cut(id, axis, extent, *old))
                };
                pairs.map(cut).collect()
            }
            _ => None,
        }
    }

    /// The axes of rows that an index picks.
    fn picked(&self, id: NodeId, first: &[Extent]) -> Option<Vec<Extent>> {
        let node = self.context.graph().node(id);
        let along = wrap(node.int("axis").ok()?.unwrap_or(0), first.len())?;
        let index = self.axes_in(id, 1)?;
        let (before, after) = (&first[..along], &first[along + 1..]);
        Some([before, &index, after].concat())
    }

    /// The axes that a reduction leaves.
    fn reduced(&self, id: NodeId, first: &[Extent]) -> Option<Vec<Extent>> {
        let node = self.context.graph().node(id);
        let along = reduction::axes(node, first.len(), |_| self.list(id, 1))?;
        let keeps = node.int("keepdims").ok()?.unwrap_or(1) != 0;
        let axis = |(axis, extent): (usize, &Extent)| match along.contains(&axis) {
            false => Some(extent.clone()),
            true => keeps.then(|| Extent::same(1)),
        };
        Some(first.iter().enumerate().filter_map(axis).collect())
    }

    /// Whether an input has an axis of as many elements as before in another order, and the result does
    /// not show where.
    pub(super) fn loses_order(&self, id: NodeId, made: &[Extent]) -> bool {
        let is_hidden = |axis: &&Extent| axis.changes() && axis.before() == axis.after();
        let inputs = 0..self.context.graph().node(id).inputs().len();
        let inputs = inputs.filter_map(|slot| self.axes_in(id, slot));
        let most = inputs
            .map(|axes| axes.iter().filter(is_hidden).count())
            .max();
        most.unwrap_or(0) > made.iter().filter(is_hidden).count()
    }

    /// The axes of parts that are joined.
    fn joined(&self, id: NodeId, rank: usize) -> Option<Vec<Extent>> {
        let node = self.context.graph().node(id);
        let along = wrap(node.int("axis").ok()??, rank)?;
        let parts = (0..node.inputs().len()).map(|slot| self.axes_in(id, slot));
        let parts: Vec<Vec<Extent>> = parts.collect::<Option<_>>()?;
        let axis = |axis: usize| {
            let own: Vec<&Extent> = parts
                .iter()
                .map(|part| part.get(axis))
                .collect::<Option<_>>()?;
            if axis == along {
                return Some(Extent::concat(own.into_iter()));
            }
            own.first().copied().cloned()
        };
        (0..rank).map(axis).collect()
    }
}
