//! Operators that move elements: the sets move with them.

use ndarray::{ArrayD, Dimension};
use posenc_ir::eval::{Budget, Value, apply};
use posenc_ir::{Node, NodeId};

use super::super::sets::Sets;
use super::{Mixing, Rules, Step};
use crate::graph::dataflow::Class;
use crate::graph::lane::pads::pads;
use crate::graph::lane::wrap;
use crate::graph::operators::{gather_axis, is_reshape, written_slots};

/// Elements of a value whose sets are moved one by one, and room for the operators that move them.
const BUDGET: Budget = Budget { elements: 1 << 22 };

impl Rules<'_> {
    /// Operators that move elements.
    pub(super) fn moved(&self, id: NodeId, inputs: &[Option<&Sets>]) -> Option<Step> {
        let node = self.model.graph().node(id);
        let first = inputs.first().copied().flatten();
        let from = || self.dims(node.input(0));
        let out = self.dims(node.output(0)).unwrap_or_default();
        match node.op() {
            op if is_reshape(op) => Some(Step::plain(first?.reshaped(from()?, out)?)),
            "Transpose" => {
                let rank = first?.rank();
                let order: Vec<usize> = match node.ints("perm").ok()? {
                    Some(perm) => perm.iter().map(|a| wrap(*a, rank)).collect::<Option<_>>()?,
                    None => (0..rank).rev().collect(),
                };
                Some(Step::plain(first?.transposed(&order)?))
            }
            "Expand" => {
                let mut sets = first?.clone();
                while sets.rank() < out.len() {
                    sets = sets.with_axis(0);
                }
                Some(Step::plain(sets))
            }
            "Gather" => self.gathered(id, inputs),
            "Slice" | "Split" | "Concat" | "Pad" | "Tile" => {
                let all_outputs = || {
                    let sets = (0..node.outputs().len()).map(|_| first.cloned());
                    sets.collect::<Vec<_>>()
                };
                let changed = |axis: &usize| from().and_then(|d| d.get(*axis)) != out.get(*axis);
                let along: Vec<usize> = match node.op() {
                    "Slice" => self.sliced(node)?,
                    // What is added at one end may be cut off at the other.
                    "Pad" => {
                        let pads = pads(node, self.trace, out.len())?;
                        (0..out.len()).filter(|a| pads[*a] != [0, 0]).collect()
                    }
                    _ => (0..out.len()).filter(changed).collect(),
                };
                let alike = inputs.iter().all(|sets| *sets == first);
                let is_uniform = |sets: &Sets| along.iter().all(|axis| sets.is_uniform(*axis));
                // A reshape may put what is added beside other tokens.
                let readers = node.output(0).map(|v| self.model.graph().uses(v));
                let mut readers = readers.into_iter().flatten();
                let is_exact = node.op() == "Pad"
                    && first.is_some_and(Sets::varies)
                    && readers.any(|at| is_reshape(self.model.graph().node(at.node).op()));
                let short = first.filter(|sets| sets.rank() == out.len() && is_uniform(sets));
                let short = short.filter(|_| !is_exact);
                match node.op() {
                    "Concat" if !alike => self.by_element(id, inputs),
                    _ if short.is_some() => Some(Step {
                        outputs: all_outputs(),
                        mixing: None,
                    }),
                    _ => self.by_element(id, inputs),
                }
            }
            "GatherElements" if self.picks_alike(node, inputs) => Some(Step::plain(first?.clone())),
            "ScatterElements" | "ScatterND" if reduces(node) => self.scattered(id, inputs),
            "GatherElements" | "ScatterElements" | "Scatter" | "TensorScatter" => {
                let moved = self.by_element(id, inputs);
                moved.or_else(|| self.chosen(id, inputs))
            }
            "GatherND" => {
                let moved = self.by_element(id, inputs);
                let along = self.dims(node.input(1))?.last()?;
                let length = from()?.get(..*along)?.iter().product();
                let few = moved.is_none() && self.picks_few(node, length);
                moved.or_else(|| few.then(Step::selection))
            }
            "ScatterND" | "DepthToSpace" | "SpaceToDepth" | "ReverseSequence" => {
                self.by_element(id, inputs)
            }
            // A sequence is a value that depends on what its parts do.
            "SplitToSequence" | "SequenceConstruct" | "ConcatFromSequence" | "SequenceAt" => {
                let along = match node.op() {
                    "SequenceAt" | "SequenceConstruct" => None,
                    _ => Some(self.axis_of(node, first?.rank())?),
                };
                let alike = inputs
                    .iter()
                    .copied()
                    .flatten()
                    .all(|sets| Some(sets) == first);
                let is_uniform = along.is_none_or(|axis| first.is_some_and(|s| s.is_uniform(axis)));
                (alike && is_uniform)
                    .then(|| Step::plain(first.cloned().unwrap_or_else(|| Sets::uniform(0, 0))))
            }
            "OneHot" => {
                let sets = first?.clone();
                let axis = node.int("axis").ok()?.unwrap_or(-1);
                let axis = wrap(axis, out.len())?;
                Some(Step::plain(sets.with_axis(axis)))
            }
            _ => None,
        }
    }

    /// Whether a `GatherElements` picks among elements of equal sets, and keeps the other axes.
    fn picks_alike(&self, node: &Node, inputs: &[Option<&Sets>]) -> bool {
        let [Some(data), None] = [0, 1].map(|slot| inputs.get(slot).copied().flatten()) else {
            return false;
        };
        let (from, to) = (self.dims(node.input(0)), self.dims(node.output(0)));
        let (Some(from), Some(to), Some(axis)) = (from, to, self.axis(node, 0)) else {
            return false;
        };
        let kept = |a: usize| a == axis || data.is_uniform(a) || from[a] == to[a];
        data.is_uniform(axis) && from.len() == to.len() && (0..to.len()).all(kept)
    }

    /// Whether a `Gather` or `GatherND` picks less than half as many elements as there are along this length,
    /// by indices of no token in particular: where it picks more, it may put tokens in another order.
    fn picks_few(&self, node: &Node, length: usize) -> bool {
        let picked = self.dims(node.input(1)).map(|dims| match node.op() {
            "GatherND" => dims.iter().rev().skip(1).product(),
            _ => dims.iter().product::<usize>(),
        });
        let is_content = node
            .input(1)
            .is_some_and(|v| self.classes.of_value(v).has(Class::CONTENT));
        is_content && picked.is_some_and(|picked| 2 * picked < length)
    }

    /// The axes that a `Slice` cuts.
    fn sliced(&self, node: &Node) -> Option<Vec<usize>> {
        let rank = self.dims(node.input(0))?.len();
        let given: Option<Vec<i64>> = match node.input(3) {
            Some(axes) => Some(self.trace.get(axes).to_i64()?.iter().copied().collect()),
            None => node.ints("axes").ok()?.map(<[i64]>::to_vec),
        };
        match given {
            Some(axes) => axes.iter().map(|axis| wrap(*axis, rank)).collect(),
            None => Some((0..rank).collect()),
        }
    }

    pub(super) fn gathered(&self, id: NodeId, inputs: &[Option<&Sets>]) -> Option<Step> {
        let node = self.model.graph().node(id);
        let out = self.dims(node.output(0))?;
        let rank = self.dims(node.input(0))?.len();
        let picked = self.dims(node.input(1))?.len();
        let axis = wrap(gather_axis(node)?, rank)?;
        let [data, indices] = [0, 1].map(|slot| inputs.get(slot).copied().flatten());
        let mut mixing = None;
        let mut parts: Vec<Sets> = vec![];
        if let Some(indices) = indices {
            let mut sets = indices.clone();
            for _ in 0..axis {
                sets = sets.with_axis(0);
            }
            for _ in axis + 1..rank {
                let last = sets.rank();
                sets = sets.with_axis(last);
            }
            parts.push(sets);
        }
        if let Some(data) = data {
            let is_few = self.picks_few(node, *self.dims(node.input(0))?.get(axis)?);
            if !data.is_uniform(axis) && indices.is_none() {
                let moved = self.by_element(id, inputs);
                // One token of each sequence, that a maximum over content selects.
                if moved.is_some() || !is_few {
                    return moved;
                }
            }
            // Which token is read depends on content.
            let (united, mixed) = data.over(&[axis]);
            if mixed {
                mixing = Some(match is_few {
                    true => Mixing::Pooling,
                    false => Mixing::Other,
                });
            }
            let mut sets = united.without(&[axis]);
            for _ in 0..picked {
                sets = sets.with_axis(axis);
            }
            parts.push(sets);
        }
        let mut sets = parts.pop()?;
        if let Some(other) = parts.pop() {
            let (both, mixed) = sets.union(&other)?;
            if mixed && mixing.is_none() {
                mixing = Some(Mixing::Other);
            }
            sets = both;
        }
        if mixing == Some(Mixing::Pooling) {
            return Some(Step::selection());
        }
        (sets.rank() == out.len()).then(|| Step::mixed(sets, mixing))
    }

    /// Elements that content chooses along an axis, to read or to write there: any of them, and what
    /// they are chosen by.
    fn chosen(&self, id: NodeId, inputs: &[Option<&Sets>]) -> Option<Step> {
        let node = self.model.graph().node(id);
        let axis = self.axis(node, 0)?;
        let reads = node.op() == "GatherElements";
        let [data, indices, updates] = [0, 1, 2].map(|slot| inputs.get(slot).copied().flatten());
        let mut parts = vec![];
        let mut mixing = None;
        let along = if reads {
            [data, None]
        } else {
            [updates, indices]
        };
        for sets in along.into_iter().flatten() {
            let (united, mixed) = sets.over(&[axis]);
            if mixed {
                let [from, picked] = [0, 1].map(|slot| self.dims(node.input(slot)));
                let is_few = 2 * picked?.get(axis)? < *from?.get(axis)?;
                mixing = Some(match reads && is_few {
                    true => Mixing::Pooling,
                    false => Mixing::Other,
                });
            }
            parts.push(united);
        }
        if mixing == Some(Mixing::Pooling) {
            return Some(Step::selection());
        }
        parts.extend(if reads { indices } else { data }.cloned());
        let mut all = parts.into_iter();
        let mut sets = all.next()?;
        for other in all {
            let (both, mixed) = sets.union(&other)?;
            if mixed {
                mixing = Some(Mixing::Other);
            }
            sets = both;
        }
        Some(Step::mixed(sets, mixing))
    }

    /// Elements that are added up, or reduced in another way, at places that do not depend on content.
    fn scattered(&self, id: NodeId, inputs: &[Option<&Sets>]) -> Option<Step> {
        let node = self.model.graph().node(id);
        let numbers = |slot: usize| {
            let dims = self.dims(node.input(slot))?;
            let dims = Some(dims).filter(|dims| BUDGET.allows(dims))?;
            match inputs.get(slot).copied().flatten() {
                Some(sets) => sets.to_numbers(dims),
                None => Some(ArrayD::zeros(dims)),
            }
        };
        let is_known = inputs.get(1).copied().flatten().is_none();
        let indices = self.trace.get(node.input(1)?).to_i64();
        let indices = indices.filter(|_| is_known)?;
        let (mut sets, rows) = (numbers(0)?, numbers(2)?);
        let mut mixed = false;
        let mut put = |place: &[usize], set: i64| {
            let own = sets.get_mut(place)?;
            let both = *own | set;
            mixed |= both != *own && both != set;
            *own = both;
            Some(())
        };
        let dims = self.dims(node.input(0))?;
        let at = |index: i64, axis: usize| wrap(index, *dims.get(axis)?);
        if node.is("ScatterElements") {
            let axis = self.axis(node, 0)?;
            for (place, index) in indices.indexed_iter() {
                let mut to = place.slice().to_vec();
                *to.get_mut(axis)? = at(*index, axis)?;
                put(&to, *rows.get(place)?)?;
            }
        } else {
            let count = indices.ndim().checked_sub(1)?;
            for (place, set) in rows.indexed_iter() {
                let (row, rest) = place.slice().split_at_checked(count)?;
                let index = |axis: usize| Some(*indices.get(&[row, &[axis]].concat()[..])?);
                let length = *indices.shape().last()?;
                let to = (0..length).map(|axis| at(index(axis)?, axis));
                let mut to: Vec<usize> = to.collect::<Option<_>>()?;
                to.extend(rest);
                put(&to, *set)?;
            }
        }
        let mixing = mixed.then_some(Mixing::Other);
        Some(Step::mixed(Sets::of_numbers(&sets), mixing))
    }

    /// Moves the sets as the operator moves elements.
    fn by_element(&self, id: NodeId, inputs: &[Option<&Sets>]) -> Option<Step> {
        let node = self.model.graph().node(id);
        let value = |slot: usize| -> Option<Option<Value>> {
            let Some(input) = node.input(slot) else {
                return Some(None);
            };
            let dims = self.dims(Some(input));
            Some(Some(match inputs.get(slot).copied().flatten() {
                // Content says which elements move.
                Some(_) if !self.is_moved(node, slot) => return None,
                Some(sets) => {
                    let dims = dims.filter(|dims| BUDGET.allows(dims))?;
                    Value::int(sets.to_numbers(dims)?)
                }
                None if self.is_moved(node, slot) => {
                    let dims = dims.filter(|dims| BUDGET.allows(dims))?;
                    Value::int(ArrayD::zeros(dims))
                }
                None => self.trace.get(input).clone(),
            }))
        };
        let values: Vec<Option<Value>> =
            (0..node.inputs().len()).map(value).collect::<Option<_>>()?;
        let values: Vec<Option<&Value>> = values.iter().map(Option::as_ref).collect();
        let outputs = apply(node, self.model.opset(), &values, &BUDGET).ok()?;
        let sets = |value: &Value| Some(Sets::of_numbers(&value.to_i64()?));
        let outputs: Option<Vec<Sets>> = outputs.iter().map(sets).collect();
        Some(Step {
            outputs: outputs?.into_iter().map(Some).collect(),
            mixing: None,
        })
    }

    /// Whether an input of an operator that moves elements is one whose elements move.
    fn is_moved(&self, node: &Node, slot: usize) -> bool {
        match node.op() {
            "Concat" => true,
            "Pad" => slot == 0 || slot == 2,
            _ => written_slots(node).map_or(slot == 0, |(places, _)| slot != places),
        }
    }
}

/// Whether a node that writes to places unites what is written to the same one with what is there.
fn reduces(node: &Node) -> bool {
    let reduction = node.string("reduction").ok().flatten();
    reduction.is_some_and(|reduction| reduction != "none")
}
