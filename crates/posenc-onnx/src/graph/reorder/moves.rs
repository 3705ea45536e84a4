//! Operators that move elements.

use ndarray::ArrayD;
use posenc_ir::ValueId;
use posenc_ir::eval::{Budget, Value, apply};

use super::order::Order;
use super::rules::View;
use super::spread::{End, Spread};

/// A part of a value, as a node reads it.
pub(super) struct Part {
    /// The value that is the part.
    pub(super) value: ValueId,
    /// Where it is along the axis.
    pub(super) from: Vec<usize>,
    /// Whether the part has no such axis.
    is_single: bool,
}

impl Part {
    /// The order of the part, with the axes of the whole.
    pub(super) fn lift(&self, order: &Order, axis: usize) -> Order {
        match self.is_single {
            true => order.moved(|own| own + usize::from(own >= axis)),
            false => order.clone(),
        }
    }
}

impl View<'_> {
    pub(super) fn reshaped(&self, end: End, order: &Order) -> Result<Spread, String> {
        let (from, to) = match end {
            End::In(0) => (End::In(0), End::Out(0)),
            End::Out(0) => (End::Out(0), End::In(0)),
            _ => return Err("it reads features as sizes".to_owned()),
        };
        let sizes = self.node().input(1);
        if sizes.is_some_and(|sizes| !self.sizes().is_plain(sizes)) {
            return Err(
                "its sizes do not follow the lengths of the inputs in a known way".to_owned(),
            );
        }
        let made = |run| {
            let dims = self.dims_in(run, from).zip(self.dims_in(run, to));
            dims.and_then(|(from, to)| order.reshaped(from, to))
        };
        let (one, other) = (made(self.trace), self.other.map(made));
        let is_same = other.is_none_or(|other| other == one);
        let made = one.filter(|_| is_same);
        let made = made.ok_or("features that move are spread over other axes")?;
        Ok(Spread::of(vec![(to, made)]))
    }

    pub(super) fn transposed(&self, end: End, order: &Order) -> Result<Spread, String> {
        let rank = self.rank(End::In(0))?;
        let given = self.node().ints("perm").ok().flatten();
        let perm: Vec<usize> = match given {
            Some(perm) => {
                let perm = perm.iter().map(|axis| self.axis(*axis, rank));
                perm.collect::<Result<_, _>>()?
            }
            None => (0..rank).rev().collect(),
        };
        let (to, made) = match end {
            End::Out(_) => (End::In(0), order.moved(|axis| perm[axis])),
            End::In(_) => {
                let at = |axis: usize| perm.iter().position(|own| *own == axis).unwrap_or(axis);
                (End::Out(0), order.moved(at))
            }
        };
        Ok(Spread::of(vec![(to, made)]))
    }

    pub(super) fn tiled(&self, end: End, order: &Order) -> Result<Spread, String> {
        let sizes = self.dims(End::In(0)).zip(self.dims(End::Out(0)));
        let (from, to) = sizes.ok_or("the sizes of its values are unknown")?;
        let is_once = |axis: &usize| from.get(*axis) == to.get(*axis);
        let other = match end {
            End::In(0) => End::Out(0),
            End::Out(0) => End::In(0),
            _ => return Err("it reads features as sizes".to_owned()),
        };
        match order.axes().iter().all(is_once) {
            true => Ok(Spread::of(vec![(other, order.clone())])),
            false => Err("it repeats features that move".to_owned()),
        }
    }

    /// The axis along which a node reads parts.
    fn part_axis(&self) -> Result<usize, String> {
        let rank = self.rank(End::In(0))?;
        match self.node().op() {
            "Slice" => {
                let dims = self.dims(End::In(0)).zip(self.dims(End::Out(0)));
                let (from, to) = dims.ok_or("the sizes of its values are unknown")?;
                let starts = self.list(1, "starts").ok_or("the part is unknown")?;
                let axes = match (self.list(3, "axes"), self.node().input(3)) {
                    (Some(axes), _) => axes,
                    (None, Some(_)) => return Err("the part is unknown".to_owned()),
                    (None, None) => (0..starts.len() as i64).collect(),
                };
                let axes = axes.into_iter().map(|axis| self.axis(axis, rank));
                let axes = axes.collect::<Result<Vec<_>, _>>()?;
                let mut cut = axes.iter().filter(|axis| from[**axis] != to[**axis]);
                let first = cut.next().or(axes.first()).copied();
                match (first, cut.next()) {
                    (Some(axis), None) => Ok(axis),
                    _ => Err("it cuts along several axes".to_owned()),
                }
            }
            _ => self.axis(self.int("axis").unwrap_or(0), rank),
        }
    }

    /// The parts of its input that a node reads along an axis, where each is fixed and counts.
    pub(super) fn parts(&self, slot: usize, axis: usize) -> Vec<Part> {
        let node = self.node();
        let is_own = slot == 0 && node.domain().is_empty() && self.part_axis() == Ok(axis);
        let selects = matches!(node.op(), "Slice" | "Split") || self.picks().is_some_and(|n| n < 2);
        if !is_own || !selects {
            return vec![];
        }
        let is_single = self.picks() == Some(0);
        let outputs = self.live_outputs();
        let parts = outputs.filter_map(|(at, value)| {
            let from = self.places(at, axis).filter(|from| !from.is_empty())?;
            Some(Part {
                value,
                from,
                is_single,
            })
        });
        parts.collect()
    }

    /// The outputs whose elements reach an output of the graph.
    fn live_outputs(&self) -> impl Iterator<Item = (usize, ValueId)> {
        let outputs = self.node().outputs().iter().enumerate();
        let outputs = outputs.filter_map(|(at, v)| Some((at, (*v)?)));
        outputs.filter(|(_, v)| self.live.contains(v))
    }

    /// How many axes the indices of a `Gather` have; `None` for other operators.
    fn picks(&self) -> Option<usize> {
        let indices = self
            .dims(End::In(1))
            .filter(|_| self.node().op() == "Gather");
        indices.map(<[usize]>::len)
    }

    /// Where an output lies in the input along an axis: what the node makes of the numbers of the places. `None` where
    /// that is not the same for all lengths, or a place is read twice.
    fn places(&self, output: usize, axis: usize) -> Option<Vec<usize>> {
        let node = self.node();
        let mut given = node.inputs().iter().skip(1).flatten();
        if !given.all(|value| self.sizes().is_fixed(*value)) {
            return None;
        }
        let dims = self.dims(End::In(0))?;
        let mut along = vec![1; dims.len()];
        along[axis] = *dims.get(axis)?;
        let numbers = (0..along[axis] as i64).collect();
        let numbers = ArrayD::from_shape_vec(along.clone(), numbers).ok()?;
        let numbers = Value::int(numbers);
        let own = |(slot, value): (usize, &Option<ValueId>)| match slot {
            0 => Some(&numbers),
            _ => value.map(|value| self.trace.get(value)),
        };
        let inputs: Vec<_> = node.inputs().iter().enumerate().map(own).collect();
        let budget = Budget {
            elements: along[axis],
        };
        let made = apply(node, self.opset, &inputs, &budget).ok()?;
        let places = made.get(output)?.to_i64()?;
        let places: Option<Vec<usize>> = places.iter().map(|n| usize::try_from(*n).ok()).collect();
        let mut seen = vec![false; along[axis]];
        let is_new = |at: &usize| !std::mem::replace(&mut seen[*at], true);
        places.filter(|all| all.iter().all(is_new))
    }

    /// What the order of a part says of the whole, which is known with its other parts.
    fn picked(
        &self,
        output: usize,
        (whole, axis): (ValueId, usize),
        order: &Order,
    ) -> Result<Spread, String> {
        let is_single = self.picks() == Some(0);
        let moves = !is_single && order.has(axis);
        match self.places(output, axis) {
            Some(_) => Ok(Spread {
                selected: Some((whole, axis)),
                ..Spread::default()
            }),
            None if moves => Err("which features it picks is unknown".to_owned()),
            // Whichever part it is, all get that order.
            None => {
                let part = Part {
                    value: whole,
                    from: vec![],
                    is_single,
                };
                Ok(Spread::of(vec![(End::In(0), part.lift(order, axis))]))
            }
        }
    }

    pub(super) fn selected(&self, end: End, order: &Order) -> Result<Spread, String> {
        let node = self.node();
        let axis = self.part_axis()?;
        let input = node.input(0).ok_or("it has no input")?;
        let picks = self.picks().unwrap_or(1);
        if let End::Out(output) = end {
            if picks > 1 {
                // Rows of a table.
                let is_row = order.axes().iter().all(|own| *own >= axis + picks);
                let of_table = order.moved(|own| (own + 1).saturating_sub(picks));
                return match is_row {
                    true => Ok(Spread::of(vec![(End::In(0), of_table)])),
                    false => Err("it picks features that move".to_owned()),
                };
            }
            return self.picked(output, (input, axis), order);
        }
        if end != End::In(0) || order.has(axis) && picks > 1 {
            return Err("it picks features that move".to_owned());
        }
        let mut ends = vec![];
        let behind = |own: usize| if own > axis { own + picks - 1 } else { own };
        for (at, _) in self.live_outputs() {
            if !order.has(axis) {
                ends.push((End::Out(at), order.moved(behind)));
                continue;
            }
            let places = self.places(at, axis);
            let places = places.ok_or("which features it picks is unknown")?;
            let part = order.within(axis, &places);
            let part = part.ok_or("features move between the parts that it makes")?;
            ends.push((End::Out(at), part.moved(behind)));
        }
        Ok(Spread::of(ends))
    }

    /// The axis along which a node joins its inputs, and where each input lies along it.
    pub(super) fn blocks(&self) -> Option<(usize, Vec<Vec<usize>>)> {
        let axis = self
            .axis(self.int("axis")?, self.rank(End::Out(0)).ok()?)
            .ok()?;
        let mut start = 0;
        let mut blocks = vec![];
        for slot in 0..self.node().inputs().len() {
            let size = *self.dims(End::In(slot))?.get(axis)?;
            blocks.push((start..start + size).collect());
            start += size;
        }
        Some((axis, blocks))
    }

    pub(super) fn joined(&self, end: End, order: &Order) -> Result<Spread, String> {
        let (axis, blocks) = self
            .blocks()
            .ok_or("the sizes of what it joins are unknown")?;
        let inputs = 0..self.node().inputs().len();
        if !order.has(axis) {
            let inputs = inputs.map(|slot| (End::In(slot), order.clone()));
            let ends = inputs.chain([(End::Out(0), order.clone())]);
            return Ok(Spread::of(ends.collect()));
        }
        if matches!(end, End::In(_)) {
            return Ok(Spread {
                joined: true,
                ..Spread::default()
            });
        }
        let mut ends = vec![];
        for (slot, block) in blocks.iter().enumerate() {
            let part = order.within(axis, block);
            let part = part.ok_or("features move between the parts that it joins")?;
            ends.push((End::In(slot), part));
        }
        Ok(Spread::of(ends))
    }
}
