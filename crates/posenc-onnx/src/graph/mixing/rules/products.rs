//! Products and windows: what they unite.

use posenc_ir::{NodeId, ValueId};

use super::super::sets::Sets;
use super::{Mixing, Rules, Step};
use crate::graph::einsum::Equation;

impl Rules<'_> {
    /// A product of two matrices, the operands being the inputs at `slots`.
    pub(super) fn product(
        &self,
        id: NodeId,
        slots: [usize; 2],
        inputs: &[Option<&Sets>],
    ) -> Option<Step> {
        let node = self.model.graph().node(id);
        let flag = |name: &str| matches!(node.int(name), Ok(Some(n)) if n != 0);
        let [a, b] = slots.map(|slot| inputs.get(slot).copied().flatten());
        let out = self.dims(node.output(0))?.len();
        let rank = |slot: usize| self.dims(node.input(slot)).map(<[usize]>::len);
        if flag("transBatchA") || flag("transBatchB") {
            return None;
        }
        let mut mixing = None;
        let mut side = |sets: &Sets, other: Option<ValueId>, transposed: bool, left: bool| {
            let last = sets.rank().checked_sub(1)?;
            let swapped = match last.checked_sub(1) {
                Some(before) if transposed => {
                    let mut order: Vec<usize> = (0..=last).collect();
                    order.swap(before, last);
                    sets.transposed(&order)?
                }
                _ => sets.clone(),
            };
            let contracted = if left || last == 0 { last } else { last - 1 };
            let (united, mixed) = swapped.over(&[contracted]);
            if mixed {
                mixing = self.contraction(other, &united).or(mixing);
            }
            // A vector has no axis of its own in the result.
            Some(if last == 0 {
                united.without(&[0])
            } else {
                united
            })
        };
        let left = match a {
            Some(sets) => Some(side(sets, node.input(slots[1]), flag("transA"), true)?),
            None => None,
        };
        let right = match b {
            Some(sets) => Some(side(sets, node.input(slots[0]), flag("transB"), false)?),
            None => None,
        };
        let vectors = (rank(slots[0])? == 1, rank(slots[1]).unwrap_or(2) == 1);
        let mut sets = match (left, right) {
            (Some(a), Some(b)) => {
                let (both, mixed) = a.union(&b)?;
                if mixed {
                    mixing = Some(Mixing::Other);
                }
                both
            }
            (a, b) => a.or(b)?,
        };
        if let (false, true) = vectors {
            let last = sets.rank().checked_sub(1)?;
            sets = sets.without(&[last]);
        }
        while sets.rank() < out {
            sets = sets.with_axis(0);
        }
        (sets.rank() == out).then(|| Step::mixed(sets, mixing))
    }

    /// How a contraction over tokens with another operand mixes them.
    fn contraction(&self, other: Option<ValueId>, united: &Sets) -> Option<Mixing> {
        let constant = other.is_some_and(|v| self.classes.of_value(v).is_constant());
        let local = united.varies();
        Some(if constant && local {
            Mixing::Convolution
        } else {
            Mixing::Other
        })
    }

    pub(super) fn einsum(&self, id: NodeId, inputs: &[Option<&Sets>]) -> Option<Step> {
        let node = self.model.graph().node(id);
        let equation = Equation::of(self.model.graph(), self.trace, id)?;
        let mut mixing = None;
        let mut result: Option<Sets> = None;
        for (slot, (sets, letters)) in inputs.iter().zip(&equation.operands).enumerate() {
            let Some(sets) = sets.as_ref().filter(|sets| sets.rank() == letters.len()) else {
                if sets.is_some() {
                    return None;
                }
                continue;
            };
            let gone: Vec<usize> = (0..letters.len())
                .filter(|axis| !equation.result.contains(&letters[*axis]))
                .collect();
            let (united, mixed) = sets.over(&gone);
            if mixed {
                let other = (0..inputs.len()).find(|other| *other != slot);
                let other = other.and_then(|other| node.input(other));
                mixing = self.contraction(other, &united).or(mixing);
            }
            let left: Vec<char> = (letters.iter().copied())
                .filter(|c| equation.result.contains(c))
                .collect();
            let mut placed = united.without(&gone);
            // In the order of the result, with axes for the letters of other operands.
            let mut order: Vec<usize> = (0..left.len()).collect();
            order.sort_by_key(|i| equation.result.iter().position(|c| *c == left[*i]));
            placed = placed.transposed(&order)?;
            for (axis, letter) in equation.result.iter().enumerate() {
                if !left.contains(letter) {
                    placed = placed.with_axis(axis);
                }
            }
            result = Some(match result {
                None => placed,
                Some(before) => {
                    let (both, mixed) = before.union(&placed)?;
                    if mixed {
                        mixing = Some(Mixing::Other);
                    }
                    both
                }
            });
        }
        Some(Step::mixed(result?, mixing))
    }

    /// A window over the axes that are neither the first nor `channels`.
    pub(super) fn windowed(&self, id: NodeId, sets: &Sets, channels: usize) -> Option<Step> {
        let node = self.model.graph().node(id);
        let dims = self.dims(node.output(0))?;
        let (united, _) = sets.over(&[channels]);
        let spatial: Vec<usize> = (1..sets.rank()).filter(|axis| *axis != channels).collect();
        if spatial.iter().all(|axis| united.is_uniform(*axis)) {
            return (sets.rank() == dims.len()).then(|| Step::plain(united));
        }
        if self.dims(node.input(0)).is_some_and(|before| {
            let alike = |axis: &usize| before.get(*axis) == dims.get(*axis);
            spatial.iter().all(alike)
        }) {
            let one = |name: &str| {
                let sizes = node.ints(name).ok().flatten();
                sizes.is_some_and(|sizes| sizes.iter().all(|n| *n == 1))
            };
            let mixing = (!one("kernel_shape")).then_some(Mixing::Convolution);
            return Some(Step::mixed(united, mixing));
        }
        let sets = Sets::numbered(dims, &spatial, false)?;
        Some(Step::mixed(sets, Some(Mixing::Convolution)))
    }
}
