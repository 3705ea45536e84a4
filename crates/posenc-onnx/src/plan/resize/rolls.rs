//! Rolled axes: the first elements put behind the last, as Swin shifts its windows.

use posenc_ir::{NodeId, ValueId};

use super::walk::Walk;
use crate::graph::extent::Extent;
use crate::graph::lane::wrap;

impl Walk<'_> {
    /// Whether two `Slice`s of one input are put behind each other in the other order: `torch.roll`, by less
    /// than the axis is long, before and afterwards.
    pub(super) fn is_rolled(&self, id: NodeId) -> bool {
        self.rolled_axis(id).is_some()
    }

    /// The axis along which an input is rolled by this `Slice` and another one.
    fn rolled_axis(&self, id: NodeId) -> Option<usize> {
        let graph = self.context.graph();
        let cut = |id: NodeId| -> Option<(ValueId, i64, i64, i64)> {
            let node = graph.node(id);
            let one = |slot: usize| match self.list(id, slot)?[..] {
                [n] => Some(n),
                _ => None,
            };
            let is_plain = node.is("Slice") && self.steps(id, 1).is_some_and(|steps| steps == [1]);
            is_plain.then(|| Some((node.input(0)?, one(1)?, one(2)?, one(3)?)))?
        };
        let out = graph.node(id).output(0)?;
        let [at] = graph.uses(out) else { return None };
        let joined = graph.node(at.node);
        if !joined.is("Concat") || joined.inputs().len() != 2 {
            return None;
        }
        let parts = [0, 1].map(|slot| graph.producer(joined.input(slot)?).map(|(id, _)| id));
        let [Some(last), Some(first)] = parts else {
            return None;
        };
        let (from, start, end, axis) = cut(last)?;
        let (same, zero, middle, other) = cut(first)?;
        let rank = self.context.dims(from)?.len();
        let along = wrap(axis, rank)?;
        let is_whole = from == same && end > 1 << 30 && zero == 0 && start == middle && start != 0;
        let joined = joined.int("axis").ok().flatten();
        let is_along = [Some(other), joined].map(|axis| wrap(axis?, rank)) == [Some(along); 2];
        // Rows of another length in one axis may be rolled by as many elements as a row had.
        let axes = self.axes_in(id, 0)?;
        let rolled = axes.get(along)?;
        let mut inner = rolled.factors().iter().skip(1);
        let is_one = rolled.parts().len() == 1 && !inner.any(Extent::changes);
        let shortest = rolled.before().min(rolled.after()) as u64;
        let is_within = start.unsigned_abs() < shortest;
        (is_whole && is_along && is_one && is_within).then_some(along)
    }

    /// The axes of an input that is rolled and joined again here.
    pub(super) fn rolled(&self, id: NodeId) -> Option<Vec<Extent>> {
        let graph = self.context.graph();
        let (part, _) = graph.producer(graph.node(id).input(0)?)?;
        let along = self.rolled_axis(part)?;
        let axes = self.axes_in(part, 0)?;
        axes[along].changes().then_some(axes)
    }
}
