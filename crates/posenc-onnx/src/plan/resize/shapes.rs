//! Reshapes to sizes that are written in the graph.

use ndarray::ArrayD;
use posenc_ir::eval::Value;
use posenc_ir::{NodeId, Tensor, Use};

use super::walk::Walk;
use crate::error::RewriteError;
use crate::graph::extent::{Extent, gathered, regrouped};
use crate::graph::lane::wrap;

/// Nodes between a number and the shape that it is part of are few.
const STEPS: usize = 8;

impl Walk<'_> {
    /// What a `Reshape` gives now, with other numbers in its shape where they do not follow.
    pub(super) fn reshape(&mut self, id: NodeId) -> Result<Vec<Value>, RewriteError> {
        let node = self.context.graph().node(id);
        let out = node.output(0).and_then(|v| self.context.dims(v));
        let from = node.input(0).and_then(|v| self.axes(v));
        let wanted = out
            .zip(from)
            .and_then(|(out, from)| regrouped(&from, out).or_else(|| gathered(&from, out)));
        let made = self.evaluate(id);
        let Some(wanted) = wanted else {
            // The graph computes the shape of the new sizes.
            let computes = node.input(1).is_some_and(|v| self.values.contains_key(&v));
            return match made {
                Ok(made) if computes => Ok(made),
                _ => {
                    let why = format!(
                        "this Reshape groups elements by sizes that do not follow the {}",
                        self.wanted.name()
                    );
                    Err(self.refuse(id, why))
                }
            };
        };
        let dims: Vec<usize> = wanted.iter().map(Extent::after).collect();
        let fits = |made: &[Value]| made.first().is_some_and(|v| v.dims.as_ref() == Some(&dims));
        if made.as_ref().is_ok_and(|made| fits(made)) {
            return made;
        }
        self.set_shape(id, &dims)?;
        let made = self.evaluate(id)?;
        if fits(&made) {
            return Ok(made);
        }
        let what = self.wanted.name();
        let why = format!("the shape of this Reshape does not follow the {what}");
        Err(self.refuse(id, why))
    }

    /// Sets what is the whole of an axis that changes: the dimensions that an `Expand` keeps, and where a
    /// `Slice` of all tokens starts or ends.
    pub(super) fn whole_numbers(&mut self, id: NodeId) -> Result<(), RewriteError> {
        self.set_cuts(id)?;
        self.set_map(id)?;
        let node = self.context.graph().node(id);
        let Some(axes) = node.input(0).and_then(|v| self.axes.get(&v)).cloned() else {
            return Ok(());
        };
        let is_expand = node.is("Expand");
        if !(is_expand || node.is("Slice") && self.counts_tokens()) {
            return Ok(());
        }
        let along = self.list(id, 3).filter(|_| !is_expand);
        for slot in if is_expand { vec![1] } else { vec![1, 2] } {
            let numbers = self.list(id, slot).unwrap_or_default();
            for (place, number) in numbers.iter().enumerate() {
                let axis = match &along {
                    _ if is_expand => (place + axes.len()).checked_sub(numbers.len()),
                    Some(along) => along.get(place).and_then(|axis| wrap(*axis, axes.len())),
                    None => Some(place),
                };
                let extent = axis.and_then(|axis| axes.get(axis));
                let Some(extent) = extent.filter(|extent| extent.changes()) else {
                    continue;
                };
                let [before, after] = [extent.before(), extent.after()].map(i64::try_from);
                let (Ok(before), Ok(after)) = (before, after) else {
                    continue;
                };
                // The last tokens start at a number that is counted from the end.
                let (old, new) = match is_expand || slot == 2 {
                    true => (before, after),
                    false => (-before, -after),
                };
                if *number == old {
                    self.set_number(Use::new(id, slot), place, new)?;
                }
            }
        }
        Ok(())
    }

    /// Sets the numbers of a shape that are not what they should be.
    fn set_shape(&mut self, id: NodeId, dims: &[usize]) -> Result<(), RewriteError> {
        let now = self.list(id, 1);
        let Some(now) = now.filter(|now| now.len() == dims.len()) else {
            return Err(self.refuse(id, "the shape of this Reshape is not at hand"));
        };
        for (place, (now, dim)) in now.iter().zip(dims).enumerate() {
            // 0 and −1 stand for what follows.
            match i64::try_from(*dim) {
                Ok(dim) if *now > 0 && *now != dim => {
                    self.set_number(Use::new(id, 1), place, dim)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Sets one number of the shape that is read here.
    pub(super) fn set_number(
        &mut self,
        at: Use,
        place: usize,
        number: i64,
    ) -> Result<(), RewriteError> {
        let graph = self.context.graph();
        let (id, mut at, mut place) = (at.node, at, place);
        let unknown = || {
            let op = graph.node(id).op();
            self.refuse(
                id,
                format!("the shape of this {op} is computed in a way that is not known"),
            )
        };
        let mut value = graph.node(id).input(at.slot()).ok_or_else(unknown)?;
        let now = self.list(id, at.slot());
        if now.is_some_and(|now| now.get(place) == Some(&number)) {
            return Ok(());
        }
        let mut between: Vec<NodeId> = vec![];
        while !self.context.found.classes.of_value(value).is_constant() {
            let (maker, _) = graph.producer(value).ok_or_else(unknown)?;
            if self.was_read(value, at.node) || between.len() == STEPS {
                return Err(unknown());
            }
            let node = graph.node(maker);
            let slot = match (node.op(), node.domain()) {
                ("Concat", "") => {
                    let mut slot = 0;
                    loop {
                        let part = self
                            .input(maker, slot)
                            .and_then(|v| v.elements())
                            .ok_or_else(unknown)?;
                        if place < part {
                            break slot;
                        }
                        place -= part;
                        slot += 1;
                    }
                }
                ("Unsqueeze" | "Squeeze" | "Reshape" | "Identity" | "Cast", "") => 0,
                _ => return Err(unknown()),
            };
            between.push(maker);
            at = Use::new(maker, slot);
            value = node.input(slot).ok_or_else(unknown)?;
        }
        let known = self.input(at.node, at.slot()).ok_or_else(unknown)?;
        let mut numbers = known.to_i64().ok_or_else(unknown)?;
        *numbers.iter_mut().nth(place).ok_or_else(unknown)? = number;
        let dtype = self.context.dtype(value);
        let numbers: ArrayD<f64> = numbers.mapv(|n| n as f64);
        let flat: Vec<f64> = numbers.iter().copied().collect();
        let tensor = Tensor::from_f64(dtype, numbers.shape(), &flat);
        self.constants.insert(at, (value, tensor));
        for maker in between.into_iter().rev() {
            let made = self.evaluate(maker)?;
            let out = graph.node(maker).output(0);
            if let (Some(out), Some(made)) = (out, made.into_iter().next()) {
                self.values.insert(out, made);
            }
        }
        Ok(())
    }
}
