//! Copies operators that scale or move a value, to apply them to a smaller value that is broadcast
//! to it.

use posenc_ir::eval::Budget;
use posenc_ir::{Emitter, NodeId, ValueId};

use crate::detect::Runs;
use crate::detect::context::Context;
use crate::edit::remove::broadcast::broadcast;
use crate::error::RewriteError;
use crate::graph::lane::wrap;

const BUDGET: Budget = Budget { elements: 1 << 22 };

/// A value and its dimensions in the trial run.
type SizedValue<'d> = (ValueId, &'d [usize]);

/// Copies operators.
pub(crate) struct OperatorCopier<'a> {
    context: Context<'a>,
    runs: Runs<'a>,
}

impl<'a> OperatorCopier<'a> {
    pub(crate) fn new(context: &Context<'a>) -> Self {
        Self {
            context: *context,
            runs: Runs::new(context.model, context.found),
        }
    }

    /// Applies a copy of `id` to a value in place of the input in `slot`; also returns the
    /// dimensions of the result. `None` if the operator needs the whole input.
    pub(crate) fn copy_onto(
        &mut self,
        out: &mut Emitter<'_>,
        id: NodeId,
        slot: usize,
        (value, dims): SizedValue<'_>,
    ) -> Result<Option<(ValueId, Vec<usize>)>, RewriteError> {
        let context = self.context;
        let node = context.graph().node(id);
        let (old, result) = (node.input(slot), node.output(0));
        let Some((old, result)) = old.zip(result) else {
            return Ok(None);
        };
        let Some((from, to)) = context.dims(old).zip(context.dims(result)) else {
            return Ok(None);
        };
        out.set_scope(node.scope());
        let (mut value, mut dims) = (value, dims.to_vec());
        if dims != from {
            // Some operators count axes from the front.
            let missing = from.len().saturating_sub(dims.len());
            if missing > 0 && !crate::graph::operators::is_elementwise(node.op()) {
                let axes: Vec<i64> = (0..missing as i64).collect();
                value = context.opset().unsqueeze(out, value, &axes);
                dims.splice(0..0, vec![1; missing]);
            }
            match self.reduced(id, from, to, &dims) {
                Some(Reduced::Unchanged) => return Ok(Some((value, dims))),
                Some(Reduced::Dims(next)) => {
                    let value = self.copy(out, id, slot, value)?;
                    return Ok(Some((value, next)));
                }
                None => match self.expanded(out, old, from, value, &dims) {
                    Some(whole) => value = whole,
                    None => return Ok(None),
                },
            }
        }
        Ok(Some((self.copy(out, id, slot, value)?, to.to_vec())))
    }

    fn copy(
        &self,
        out: &mut Emitter<'_>,
        id: NodeId,
        slot: usize,
        value: ValueId,
    ) -> Result<ValueId, RewriteError> {
        let mut inputs = self.context.graph().node(id).inputs().to_vec();
        inputs[slot] = Some(value);
        out.set_scope(self.context.graph().node(id).scope());
        let made = out.copy(id, &inputs, &[])?;
        let first = made.into_iter().flatten().next();
        first.ok_or_else(|| {
            self.context
                .refuse(id, "cannot copy the operator: nothing reads its result")
        })
    }

    /// The result for a value of `dims` of an operator that maps dimensions `from` to `to`.
    fn reduced(&self, id: NodeId, from: &[usize], to: &[usize], dims: &[usize]) -> Option<Reduced> {
        let graph = self.context.graph();
        let node = graph.node(id);
        let whole = |axis: &usize| dims[*axis] == from[*axis];
        match node.op() {
            "Transpose" => {
                let axes: Vec<usize> = match node.ints("perm").ok()? {
                    Some(perm) => perm
                        .iter()
                        .map(|a| usize::try_from(*a).ok())
                        .collect::<Option<_>>()?,
                    None => (0..dims.len()).rev().collect(),
                };
                let next: Option<Vec<usize>> = axes.iter().map(|a| dims.get(*a).copied()).collect();
                Some(Reduced::Dims(next?))
            }
            "Unsqueeze" => {
                let mut next = dims.to_vec();
                let mut axes = self.axes(id, 1, to.len())?;
                axes.sort_unstable();
                for axis in axes {
                    next.insert(Some(axis).filter(|a| *a <= next.len())?, 1);
                }
                Some(Reduced::Dims(next))
            }
            "Squeeze" => {
                let axes = self.axes(id, 1, from.len())?;
                let kept = (0..dims.len()).filter(|a| !axes.contains(a));
                Some(Reduced::Dims(kept.map(|a| dims[a]).collect()))
            }
            "Slice" => {
                let axes = self.axes(id, 3, from.len())?;
                if axes.iter().all(whole) {
                    let next =
                        (0..dims.len()).map(|a| if axes.contains(&a) { to[a] } else { dims[a] });
                    return Some(Reduced::Dims(next.collect()));
                }
                let none = axes.iter().all(|a| dims[*a] == 1 && to[*a] > 0);
                none.then_some(Reduced::Unchanged)
            }
            "Gather" => {
                let named = node.int("axis").ok()?.unwrap_or(0);
                let axis =
                    wrap(named, from.len()).filter(|a| whole(a) && from.len() == to.len())?;
                let mut next = dims.to_vec();
                next[axis] = to[axis];
                Some(Reduced::Dims(next))
            }
            "Expand" => {
                let shape = self.context.found.trace.get(node.input(1)?).to_i64()?;
                let shape: Option<Vec<usize>> =
                    shape.iter().map(|n| usize::try_from(*n).ok()).collect();
                Some(Reduced::Dims(broadcast(dims, &shape?)?))
            }
            op if crate::graph::operators::is_elementwise(op) => {
                // The other operand, a single number, may have more axes.
                let rank = (0..node.inputs().len())
                    .filter_map(|slot| Some(self.context.dims(node.input(slot)?)?.len()));
                (rank.max()? <= from.len()).then(|| Reduced::Dims(dims.to_vec()))
            }
            _ => None,
        }
    }

    /// The axes that an input or attribute lists.
    fn axes(&self, id: NodeId, slot: usize, rank: usize) -> Option<Vec<usize>> {
        let node = self.context.graph().node(id);
        let named = match node.input(slot) {
            Some(value) => self
                .context
                .found
                .trace
                .get(value)
                .to_i64()?
                .iter()
                .copied()
                .collect(),
            None => node.ints("axes").ok()??.to_vec(),
        };
        named
            .into_iter()
            .map(|axis: i64| wrap(axis, rank))
            .collect()
    }

    /// Expands a value to the dimensions `from` of `old`, if the axes to expand have the same
    /// length in every run.
    fn expanded(
        &mut self,
        out: &mut Emitter<'_>,
        old: ValueId,
        from: &[usize],
        value: ValueId,
        dims: &[usize],
    ) -> Option<ValueId> {
        let found = self.context.found;
        // A batch of one, or another length if the model accepts any.
        let other = match found.ports.fixed_sequence() {
            Some(fixed) => self.runs.once(fixed, &BUDGET)?.get(old).dims.clone()?,
            None => self
                .runs
                .at(found.lengths.sequence + 1)?
                .get(old)
                .dims
                .clone()?,
        };
        let lacks = |axis: usize| dims[axis] != from[axis];
        if dims.len() != from.len()
            || (0..from.len()).any(|a| lacks(a) && other.get(a) != from.get(a))
        {
            return None;
        }
        let shape = (0..from.len()).map(|a| i64::try_from(if lacks(a) { from[a] } else { 1 }).ok());
        let shape = out.ints("shape", &shape.collect::<Option<Vec<i64>>>()?);
        Some(out.op("Expand", &[value, shape]))
    }
}

enum Reduced {
    /// The operator has no effect on it.
    Unchanged,
    /// The result has these dimensions.
    Dims(Vec<usize>),
}
