//! Queries that are folded with heads into one axis before their product, as where several heads
//! read the same keys. The site reads them before that.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, NodeId, ValueId};
use rustc_hash::FxHashSet;

use super::site::Operand;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::lane::{Lane, back};
use crate::graph::operators::{
    is_copy, is_elementwise, is_projection, is_rearrangement, is_reshape,
};
use crate::graph::product::Letters;

/// Nodes between queries and their product, and from there to the scores, are few.
const FEW: usize = 64;

/// What a site's queries and scores are found in.
#[derive(Clone, Copy)]
pub(super) struct Folded<'a> {
    pub(super) graph: &'a Graph,
    pub(super) classes: &'a Classes,
    pub(super) trace: &'a Trace,
    /// The queries as they enter the product.
    pub(super) query: Operand,
    /// The product, and the axis of queries in it.
    pub(super) product: (ValueId, usize),
    pub(super) scores: ValueId,
}

/// Axes that one axis is folded from, by their lengths, and the one of the tokens.
#[derive(Debug, PartialEq, Eq)]
struct Fold {
    lengths: Vec<usize>,
    tokens: usize,
}

impl Folded<'_> {
    /// The queries before they are folded, and the axis of their tokens in the scores.
    pub(super) fn unfold(&self) -> Option<(Operand, usize)> {
        let (query, fold) = self.query()?;
        let rank = self.dims(self.scores)?.len();
        let mut rows = (0..rank).filter(|row| self.comes_from(*row, &fold));
        let row = rows.next().filter(|_| rows.next().is_none())?;
        Some((query, row))
    }

    fn dims(&self, value: ValueId) -> Option<&[usize]> {
        self.trace.get(value).dims.as_deref()
    }

    fn content(&self, id: NodeId) -> Vec<(usize, ValueId)> {
        let inputs = self.graph.node(id).inputs().iter().enumerate();
        let given = inputs.filter_map(|(slot, v)| Some((slot, (*v)?)));
        given
            .filter(|(_, v)| self.classes.of_value(*v).has(Class::CONTENT))
            .collect()
    }

    /// The last value on the way to the product in which tokens have an axis of their own.
    fn query(&self) -> Option<(Operand, Fold)> {
        let Operand {
            mut value,
            mut lane,
        } = self.query;
        for _ in 0..FEW {
            let (id, output) = self.graph.producer(value)?;
            let node = self.graph.node(id);
            let [(slot, before)] = self.content(id)[..] else {
                return None;
            };
            let keeps = node.domain().is_empty()
                && (is_copy(node.op()) || is_rearrangement(node.op()) || is_elementwise(node.op()));
            if !keeps {
                return None;
            }
            let moved = |lane| back(self.graph, self.trace, id, output, slot, lane);
            if let Some(whole) = moved(lane) {
                (value, lane) = (before, whole);
                continue;
            }
            let feature = moved(Lane::of_sequence(lane.feature?))?.sequence;
            let (from, to) = (self.dims(before)?, self.dims(value)?);
            let axes = parts(from, to, lane.sequence).filter(|_| is_reshape(node.op()))?;
            let mut own = (0..axes.len()).filter(|i| self.is_token_axis(before, axes[*i]));
            let tokens = own.next().filter(|_| own.next().is_none())?;
            let lane = Lane {
                sequence: axes[tokens],
                feature: Some(feature),
                ..lane
            };
            let lengths = axes.iter().map(|a| from[*a]).collect();
            let operand = Operand {
                value: before,
                lane,
            };
            return Some((operand, Fold { lengths, tokens }));
        }
        None
    }

    /// Whether an axis is one of what enters the projection of a value, and no axis of its weights.
    fn is_token_axis(&self, mut value: ValueId, mut axis: usize) -> bool {
        for _ in 0..FEW {
            let Some((id, output)) = self.graph.producer(value) else {
                return false;
            };
            let content = self.content(id);
            if is_projection(self.graph.node(id)) {
                let [(slot, _)] = content[..] else {
                    return false;
                };
                return match Letters::of(self.graph, self.trace, id) {
                    Some(letters) => {
                        let letter = letters.result.get(axis);
                        letter.is_some_and(|c| letters.operands[slot.min(1)].contains(c))
                    }
                    None => self.dims(value).is_some_and(|d| axis + 1 < d.len()),
                };
            }
            let lane = Lane::of_sequence(axis);
            let before = content.into_iter().find_map(|(slot, v)| {
                match back(self.graph, self.trace, id, output, slot, lane) {
                    Some(lane) => Some((v, lane.sequence)),
                    // Tokens may follow each other sequence by sequence.
                    None => Some((v, self.whole(id, v, value, axis)?)),
                }
            });
            match before {
                Some(before) => (value, axis) = before,
                None => return false,
            }
        }
        false
    }

    /// The axis of `from` of which a reshape makes this axis of `to` and others.
    fn whole(&self, id: NodeId, from: ValueId, to: ValueId, axis: usize) -> Option<usize> {
        let (from, to) = (self.dims(from)?, self.dims(to)?);
        let contains = |whole: &usize| parts(to, from, *whole).is_some_and(|a| a.contains(&axis));
        let mut all = (0..from.len()).filter(|_| is_reshape(self.graph.node(id).op()));
        all.find(contains)
    }

    /// Whether an axis of the scores is the tokens' part of the axis of queries in the product.
    fn comes_from(&self, row: usize, fold: &Fold) -> bool {
        let mut stack = vec![(self.scores, row, false)];
        let mut seen = FxHashSet::default();
        while let Some((value, axis, unfolded)) = stack.pop() {
            if (value, axis) == self.product {
                return unfolded;
            }
            let Some((id, output)) = self.graph.producer(value) else {
                continue;
            };
            if !seen.insert((value, axis)) || seen.len() > FEW {
                continue;
            }
            for (slot, before) in self.content(id) {
                let lane = Lane::of_sequence(axis);
                if let Some(lane) = back(self.graph, self.trace, id, output, slot, lane) {
                    stack.push((before, lane.sequence, unfolded));
                } else if is_reshape(self.graph.node(id).op())
                    && let (Some(from), Some(to)) = (self.dims(before), self.dims(value))
                {
                    // The axis of which this is the part.
                    let whole = (0..from.len()).find(|whole| {
                        let axes = parts(to, from, *whole).unwrap_or_default();
                        let lengths: Vec<usize> = axes.iter().map(|a| to[*a]).collect();
                        lengths == fold.lengths && axes[fold.tokens] == axis
                    });
                    stack.extend(whole.map(|whole| (before, whole, true)));
                }
            }
        }
        false
    }
}

/// The axes of `from`, longer than one, that `to[axis]` consists of; `None` for fewer than two.
fn parts(from: &[usize], to: &[usize], axis: usize) -> Option<Vec<usize>> {
    let before: usize = to[..axis].iter().product();
    let (mut product, mut inside) = (1, 1);
    let mut axes = vec![];
    for (i, n) in from.iter().enumerate() {
        if product < before {
            product *= n;
        } else if inside < to[axis] {
            inside *= n;
            axes.extend((*n > 1).then_some(i));
        }
    }
    (product == before && inside == to[axis] && axes.len() > 1).then_some(axes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_is_split_into_those_that_it_was_folded_from() {
        type Case = (
            &'static [usize],
            &'static [usize],
            usize,
            Option<Vec<usize>>,
        );
        let cases: [Case; 6] = [
            (&[2, 3, 4, 7, 1, 8], &[6, 28, 8], 1, Some(vec![2, 3])),
            (&[2, 3, 4, 7, 1, 8], &[6, 28, 8], 0, Some(vec![0, 1])),
            (&[2, 3, 4, 7, 1, 8], &[6, 28, 8], 2, None),
            (&[1, 3, 7, 8], &[1, 3, 7, 8], 2, None),
            (&[2, 7, 3, 8], &[14, 24], 0, Some(vec![0, 1])),
            (&[4, 7, 2], &[7, 8], 0, None),
        ];
        for (from, to, axis, want) in cases {
            assert_eq!(parts(from, to, axis), want, "{from:?} {to:?} {axis}");
        }
    }
}
