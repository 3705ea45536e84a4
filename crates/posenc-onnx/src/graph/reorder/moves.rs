//! Operators that move elements.

use posenc_ir::ValueId;

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
        let dims = self.dims(from).zip(self.dims(to));
        let made = dims.and_then(|(from, to)| order.reshaped(from, to));
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
                let all = || (0..starts.len() as i64).collect();
                let axes: Vec<i64> = self.list(3, "axes").unwrap_or_else(all);
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

    /// The parts of its input that a node reads along an axis.
    pub(super) fn parts(&self, slot: usize, axis: usize) -> Vec<Part> {
        let node = self.node();
        let is_own = slot == 0 && node.domain().is_empty() && self.part_axis() == Ok(axis);
        if !is_own || !matches!(node.op(), "Slice" | "Split" | "Gather") {
            return vec![];
        }
        let outputs = node.outputs().iter().enumerate();
        let outputs = outputs.filter_map(|(at, v)| Some((at, (*v)?)));
        let is_read =
            |v: &ValueId| !self.graph.uses(*v).is_empty() || self.graph.value(*v).is_output();
        let mut parts = vec![];
        let is_single = node.op() == "Gather" && self.dims(End::In(1)) == Some(&[]);
        for (at, value) in outputs.filter(|(_, v)| is_read(v)) {
            let from = self.places(at, axis);
            parts.extend(from.map(|from| Part {
                value,
                from,
                is_single,
            }));
        }
        parts
    }

    /// Where an output lies in the input along an axis; `None` where it is not fixed.
    fn places(&self, output: usize, axis: usize) -> Option<Vec<usize>> {
        let size = *self.dims(End::In(0))?.get(axis)?;
        let node = self.node();
        match node.op() {
            "Split" => {
                let length = |at: usize| Some(*self.dims(End::Out(at))?.get(axis)?);
                let before: Option<Vec<usize>> = (0..output).map(length).collect();
                let start: usize = before?.into_iter().sum();
                Some((start..start + length(output)?).collect())
            }
            "Gather" => {
                let picks = self.trace.get(node.input(1)?).to_i64()?;
                let wrap = |n: &i64| self.axis(*n, size).ok();
                let picks: Option<Vec<usize>> = picks.iter().map(wrap).collect();
                let mut seen = vec![false; size];
                let is_new = |at: &usize| !std::mem::replace(&mut seen[*at], true);
                picks.filter(|all| all.iter().all(is_new))
            }
            _ => {
                let starts = self.list(1, "starts")?;
                let all: Vec<i64> = (0..starts.len() as i64).collect();
                let axes = self.list(3, "axes").unwrap_or(all);
                let rank = self.rank(End::In(0)).ok()?;
                let at = axes
                    .iter()
                    .position(|own| self.axis(*own, rank) == Ok(axis))?;
                let step = self
                    .list(4, "steps")
                    .map_or(Some(1), |s| s.get(at).copied())?;
                let start = *starts.get(at)?;
                let start = if start < 0 {
                    start + size as i64
                } else {
                    start
                };
                let start = start.clamp(
                    0,
                    if step < 0 {
                        size as i64 - 1
                    } else {
                        size as i64
                    },
                );
                let count = *self.dims(End::Out(0))?.get(axis)? as i64;
                let places = (0..count).map(|i| usize::try_from(start + i * step).ok());
                let places: Option<Vec<usize>> = places.collect();
                places.filter(|all| all.iter().all(|at| *at < size))
            }
        }
    }

    pub(super) fn selected(&self, end: End, order: &Order) -> Result<Spread, String> {
        let node = self.node();
        let axis = self.part_axis()?;
        let input = node.input(0).ok_or("it has no input")?;
        if matches!(end, End::Out(_)) {
            let picks = self.dims(End::In(1)).map_or(1, <[usize]>::len);
            if node.op() == "Gather" && picks > 1 {
                // Rows of a table.
                let is_row = order.axes().iter().all(|own| *own >= axis + picks);
                let of_table = order.moved(|own| (own + 1).saturating_sub(picks));
                return match is_row {
                    true => Ok(Spread::of(vec![(End::In(0), of_table)])),
                    false => Err("it picks features that move".to_owned()),
                };
            }
            return Ok(Spread {
                selected: Some((input, axis)),
                ..Spread::default()
            });
        }
        if end != End::In(0) {
            return Err("it picks by features".to_owned());
        }
        let mut ends = vec![];
        if !order.has(axis) {
            let picks = match node.op() {
                "Gather" => self.dims(End::In(1)).ok_or("its picks are unknown")?.len(),
                _ => 1,
            };
            let to = |own: usize| if own > axis { own + picks - 1 } else { own };
            for at in 0..node.outputs().len() {
                ends.push((End::Out(at), order.moved(to)));
            }
            return Ok(Spread::of(ends));
        }
        for at in 0..node.outputs().len() {
            let is_read = node
                .output(at)
                .is_some_and(|v| !self.graph.uses(v).is_empty() || self.graph.value(v).is_output());
            if !is_read {
                continue;
            }
            let places = self
                .places(at, axis)
                .ok_or("which features it picks is unknown")?;
            let part = order.within(axis, &places);
            let part = part.ok_or("features move between the parts that it makes")?;
            let is_single = node.op() == "Gather" && self.dims(End::In(1)) == Some(&[]);
            let to = |own: usize| own - usize::from(is_single && own > axis);
            ends.push((End::Out(at), part.moved(to)));
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
