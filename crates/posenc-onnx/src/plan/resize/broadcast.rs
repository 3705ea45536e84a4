//! Masks that are the same for all tokens, written down for as many as there were.

use ndarray::{ArrayD, Axis};
use posenc_ir::eval::Value;
use posenc_ir::{DType, NodeId, Tensor, Use};

use super::walk::Walk;
use crate::error::RewriteError;
use crate::graph::extent::Extent;
use crate::graph::lane::{Lane, back};
use crate::graph::operators::is_elementwise;

/// What hides a key is not above this.
const HIDES: f64 = -1e4;

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
                let axes = walk.axes_in(id, slot)?;
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
                if !self.widen(Use::new(id, slot), axis, &wanted, STEPS)? {
                    return Err(self.refuse_numbers(id));
                }
            }
        }
        Ok(())
    }

    /// Gives what is read here another length along an axis; whether that was possible.
    fn widen(
        &mut self,
        at: Use,
        axis: usize,
        wanted: &Extent,
        steps: usize,
    ) -> Result<bool, RewriteError> {
        let graph = self.context.graph();
        let own = self.axes_in(at.node, at.slot());
        let own = own.and_then(|axes| axes.get(axis).cloned());
        let (Some(value), Some(own)) = (graph.node(at.node).input(at.slot()), own) else {
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
            self.constants.insert(at, (value, tensor));
            return Ok(true);
        }
        let Some((maker, output)) = graph.producer(value) else {
            return Ok(false);
        };
        if self.was_read(value, at.node) {
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
                        && !self.widen(Use::new(maker, 0), inner, wanted, steps - 1)?
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
                        && !self.widen(Use::new(maker, slot), inner, wanted, steps - 1)?
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
                if !self.widen(inner, lane.sequence, wanted, steps - 1)? {
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

    /// A constant that masks all or nothing along an axis, for so many elements.
    fn lengthened(&self, at: Use, axis: usize, length: usize) -> Option<Tensor> {
        let known = self.input(at.node, at.slot())?;
        let dtype = known.dtype?;
        let numbers: ArrayD<f64> = match dtype {
            DType::Bool => known.to_bool()?.mapv(|b| f64::from(u8::from(b))),
            dtype if dtype.is_float() => known.to_f64()?,
            _ => known.to_i64()?.mapv(|n| n as f64),
        };
        let first = numbers.index_axis(Axis(axis), 0);
        let is_same = numbers.axis_iter(Axis(axis)).all(|other| other == first);
        // Other numbers may be those of a mean over the old number of tokens.
        let is_mask = |v: &f64| *v == 0.0 || *v == 1.0 || *v <= HIDES;
        if !is_same || !first.iter().all(is_mask) {
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
