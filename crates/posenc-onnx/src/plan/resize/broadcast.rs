//! Masks and indices, written down for as many tokens as there were.

use ndarray::Axis;
use posenc_ir::eval::Value;
use posenc_ir::{NodeId, Tensor, Use};

use super::elements;
use super::rules::Rule;
use super::sizes::Wanted;
use super::walk::Walk;
use crate::attention::mask::HIDES;
use crate::error::RewriteError;
use crate::graph::continued::fits;
use crate::graph::extent::Extent;
use crate::graph::lane::{Lane, back, wrap};
use crate::graph::operators::is_elementwise;

/// Nodes between numbers and where they meet tokens are few.
pub(super) const STEPS: usize = 8;

impl Walk<'_> {
    /// Gives the inputs of an elementwise operator that do not follow the image as many elements as
    /// those that do.
    ///
    /// # Errors
    /// Where an input has a number of its own for each of them.
    pub(super) fn widen_inputs(&mut self, id: NodeId) -> Result<(), RewriteError> {
        let node = self.context.graph().node(id);
        let slots = match node.op() {
            "CastLike" | "Dropout" => 1,
            _ => node.inputs().len(),
        };
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
    pub(super) fn widen(
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
        let done = self.constants.get(&at);
        let is_done = done.is_some_and(|(_, new)| new.dims().get(axis) == Some(&wanted.after()));
        if own.before() == 1 || own == *wanted || is_done {
            return Ok(true);
        }
        if own.changes() || own.before() != wanted.before() || steps == 0 {
            return Ok(false);
        }
        if self.context.found.classes.of_value(value).is_constant() {
            let Some(tensor) = self.lengthened(at, axis, wanted.after()) else {
                let mut axes = self.axes_in(at.node, at.slot()).unwrap_or_default();
                axes[axis] = wanted.clone();
                return Ok(self.cut_rows(at, &axes));
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
                    if let Some(inner) = below(from, axis, rank)
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
                // The other inputs of these are no operands.
                let slots = match op {
                    "CastLike" | "Dropout" => 1,
                    _ => node.inputs().len(),
                };
                for slot in 0..slots {
                    let from = node.input(slot).and_then(|v| self.context.dims(v));
                    if let Some(inner) = below(from, axis, rank)
                        && !self.widen(Use::new(maker, slot), inner, wanted, steps - 1)?
                    {
                        return Ok(false);
                    }
                }
            }
            "Gather" => {
                let along = node.int("axis").ok().flatten().unwrap_or(0);
                let data = node.input(0).and_then(|v| self.context.dims(v));
                let along = data.and_then(|dims| wrap(along, dims.len()));
                // The index picks further rows.
                let Some(inner) = along.and_then(|along| axis.checked_sub(along)) else {
                    return Ok(false);
                };
                let index = node.input(1).and_then(|v| self.context.dims(v));
                if index.is_none_or(|dims| inner >= dims.len())
                    || !self.widen(Use::new(maker, 1), inner, wanted, steps - 1)?
                {
                    return Ok(false);
                }
                let rows = data.zip(along).map_or(0, |(dims, along)| dims[along]);
                let has_row = |n: &i64| usize::try_from(*n).is_ok_and(|n| n < rows);
                if !self
                    .list(maker, 1)
                    .is_some_and(|all| all.iter().all(has_row))
                {
                    return Ok(false);
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

    /// A constant for so many elements along an axis: one that masks all or nothing there, positions, or a
    /// mask by distance, of which two axes get longer.
    fn lengthened(&self, at: Use, axis: usize, length: usize) -> Option<Tensor> {
        let known = self.input(at.node, at.slot())?;
        let dtype = known.dtype?;
        let numbers = elements::read(&known)?;
        let mut dims = numbers.shape().to_vec();
        dims[axis] = length;
        if !fits(&dims) {
            return None;
        }
        let first = numbers.index_axis(Axis(axis), 0);
        let is_same = numbers.axis_iter(Axis(axis)).all(|other| other == first);
        // Other numbers may be those of a mean over the old number of tokens.
        let is_mask = |v: &f64| *v == 0.0 || *v == 1.0 || *v <= HIDES;
        // The same row for every token, as that of its type.
        let adds = self.context.graph().node(at.node).is("Add");
        let is_row = adds && first.iter().any(|v| Some(v) != first.iter().next());
        let new = if is_same && (is_row || first.iter().all(is_mask)) {
            let first = first.insert_axis(Axis(axis));
            first.broadcast(dims)?.to_owned()
        } else if matches!(self.wanted, Wanted::Image { .. }) {
            return None;
        } else if dtype.is_int() || numbers.iter().all(is_mask) {
            let rule = Rule::along(&numbers, axis)?;
            if rule.end_of(numbers.shape()[axis]).is_some() {
                return None;
            }
            for other in rule.axes() {
                dims[other] = length;
            }
            if !fits(&dims) {
                return None;
            }
            rule.numbers(&dims)
        } else {
            return None;
        };
        Some(elements::tensor(dtype, &new))
    }
}

/// The axis of an input of these dimensions that meets this one of a result; `None` where it has none there.
fn below(dims: Option<&[usize]>, axis: usize, rank: usize) -> Option<usize> {
    (axis + dims.map_or(rank, <[usize]>::len)).checked_sub(rank)
}

/// Operators that compare element by element, and combine what was compared.
pub(super) fn is_comparison(op: &str) -> bool {
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
