//! Masks and other numbers that are the same for all tokens, written down for as many as there were.

use ndarray::{ArrayD, Axis};
use posenc_ir::eval::Value;
use posenc_ir::{DType, NodeId, Tensor, Use};

use super::walk::Walk;
use crate::error::RewriteError;
use crate::graph::extent::Extent;
use crate::graph::lane::{Lane, back};
use crate::graph::operators::is_elementwise;

/// Nodes between numbers and where they meet tokens are few.
const STEPS: usize = 8;

impl Walk<'_> {
    /// Gives the inputs of an elementwise operator that do not follow the image as many elements as
    /// those that do.
    ///
    /// # Errors
    /// Where an input has a number of its own for each of them.
    pub(super) fn widen_inputs(&mut self, id: NodeId) -> Result<(), RewriteError> {
        let node = self.context.graph().node(id);
        let slots = node.inputs().len();
        let rank = node.output(0).and_then(|v| self.context.dims(v));
        for behind in 1..=rank.map_or(0, <[usize]>::len) {
            let axis = |walk: &Self, slot: usize| -> Option<(usize, Extent)> {
                let axes = walk.axes(node.input(slot)?)?;
                let at = axes.len().checked_sub(behind)?;
                Some((at, axes[at].clone()))
            };
            let all: Vec<_> = (0..slots).map(|slot| axis(self, slot)).collect();
            let mut changed = all.iter().flatten().map(|(_, extent)| extent);
            let Some(wanted) = changed.find(|extent| extent.changes()).cloned() else {
                continue;
            };
            for (slot, own) in all.into_iter().enumerate() {
                let Some((axis, extent)) = own else { continue };
                if extent.changes() || extent.before() != wanted.before() || extent.before() == 1 {
                    continue;
                }
                if !self.widen(id, Use::new(id, slot), axis, &wanted, STEPS)? {
                    let why = format!(
                        "this {} reads a number for each token, and which those of another image are is \
                         not known",
                        node.op()
                    );
                    return Err(self.refuse(id, why));
                }
            }
        }
        Ok(())
    }

    /// Gives a value that `reader` needs another length along an axis; whether that was possible.
    fn widen(
        &mut self,
        reader: NodeId,
        at: Use,
        axis: usize,
        wanted: &Extent,
        steps: usize,
    ) -> Result<bool, RewriteError> {
        let graph = self.context.graph();
        let Some(value) = graph.node(at.node).input(at.slot()) else {
            return Ok(false);
        };
        let Some(own) = self.axes(value).and_then(|axes| axes.get(axis).cloned()) else {
            return Ok(false);
        };
        if own.before() == 1 || own == *wanted {
            return Ok(true);
        }
        if own.changes() || own.before() != wanted.before() || steps == 0 {
            return Ok(false);
        }
        if self.context.found.classes.of_value(value).is_constant() {
            let Some(tensor) = self.lengthened(at, axis, wanted.after()) else {
                return Ok(false);
            };
            self.set(value, at, tensor);
            return Ok(true);
        }
        let Some((maker, output)) = graph.producer(value) else {
            return Ok(false);
        };
        // What read it before would have to be evaluated again.
        let comes_before = |u: &Use| u.node != reader && self.place(u.node) < self.place(reader);
        let read = graph.uses(value).iter().filter(|u| comes_before(u));
        if read
            .into_iter()
            .any(|u| !self.is_between(u.node, reader, STEPS))
        {
            return Ok(false);
        }
        let node = graph.node(maker);
        let op = node.op();
        if !node.domain().is_empty() {
            return Ok(false);
        }
        let rank = self.context.dims(value).map_or(0, <[usize]>::len);
        match op {
            "Expand" | "ConstantOfShape" => {
                let slot = usize::from(op == "Expand");
                if op == "Expand" {
                    let from = node.input(0).and_then(|v| self.context.dims(v));
                    let missing = rank - from.map_or(rank, <[usize]>::len);
                    if let Some(inner) = axis.checked_sub(missing)
                        && !self.widen(reader, Use::new(maker, 0), inner, wanted, steps - 1)?
                    {
                        return Ok(false);
                    }
                }
                let Ok(number) = i64::try_from(wanted.after()) else {
                    return Ok(false);
                };
                self.set_number(Use::new(maker, slot), axis, number)?;
            }
            op if is_elementwise(op) || is_comparison(op) => {
                for slot in 0..node.inputs().len() {
                    let from = node.input(slot).and_then(|v| self.context.dims(v));
                    let missing = rank - from.map_or(rank, <[usize]>::len);
                    if let Some(inner) = axis.checked_sub(missing)
                        && !self.widen(reader, Use::new(maker, slot), inner, wanted, steps - 1)?
                    {
                        return Ok(false);
                    }
                }
            }
            "Unsqueeze" | "Squeeze" | "Transpose" => {
                let lane = Lane::of_sequence(axis);
                let trace = &self.context.found.trace;
                let Some(lane) = back(graph, trace, maker, output, 0, lane) else {
                    return Ok(false);
                };
                let inner = Use::new(maker, 0);
                if !self.widen(reader, inner, lane.sequence, wanted, steps - 1)? {
                    return Ok(false);
                }
            }
            _ => return Ok(false),
        }
        let made = self.evaluate(maker)?.into_iter().next();
        let made = made.unwrap_or_else(Value::unknown);
        let fits = made.dims.as_ref().and_then(|dims| dims.get(axis)) == Some(&wanted.after());
        let mut axes = self.axes(value).unwrap_or_default();
        axes[axis] = wanted.clone();
        self.axes.insert(value, axes);
        self.values.insert(value, made);
        Ok(fits)
    }

    /// Whether a node only leads to `reader`.
    fn is_between(&self, id: NodeId, reader: NodeId, steps: usize) -> bool {
        let graph = self.context.graph();
        id == reader
            || steps > 0
                && graph.node(id).outputs().iter().flatten().all(|out| {
                    let later = |u: &&Use| self.place(u.node) <= self.place(reader);
                    let mut uses = graph.uses(*out).iter().filter(later);
                    uses.all(|u| self.is_between(u.node, reader, steps - 1))
                })
    }

    /// A constant that is the same all along an axis, for so many elements.
    fn lengthened(&self, at: Use, axis: usize, length: usize) -> Option<Tensor> {
        let known = self.input(at.node, at.slot())?;
        let dtype = known.dtype?;
        let numbers: ArrayD<f64> = match dtype {
            DType::Bool => known.to_bool()?.mapv(|b| f64::from(u8::from(b))),
            dtype if dtype.is_float() => known.to_f64()?,
            _ => known.to_i64()?.mapv(|n| n as f64),
        };
        let first = numbers.index_axis(Axis(axis), 0);
        if numbers.axis_iter(Axis(axis)).any(|other| other != first) {
            return None;
        }
        let mut dims = numbers.shape().to_vec();
        dims[axis] = length;
        let first = first.insert_axis(Axis(axis));
        let all: Vec<f64> = first.broadcast(dims.clone())?.iter().copied().collect();
        Some(Tensor::from_f64(dtype, &dims, &all))
    }
}

/// Operators that compare element by element, and combine what was compared.
fn is_comparison(op: &str) -> bool {
    matches!(
        op,
        "Equal"
            | "Less"
            | "LessOrEqual"
            | "Greater"
            | "GreaterOrEqual"
            | "And"
            | "Or"
            | "Xor"
            | "Not"
    )
}
