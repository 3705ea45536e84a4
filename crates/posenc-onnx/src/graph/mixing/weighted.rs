//! Sums over tokens, each with a weight of its own: what additive attention of a recurrent decoder
//! reads.
//!
//! The weight of a token is computed from that token and from what is the same for all, without a
//! position, and a softmax divides by the sum of all. Whatever the order of the tokens, the sum is the
//! same.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Node, ValueId};
use rustc_hash::FxHashSet;

use crate::graph::dataflow::{Class, Classes};
use crate::graph::lane::{Lane, back, wrap};
use crate::graph::operators::{is_copy, is_layout};

/// Values to look at before a product.
const MOST: usize = 64;

/// What the walk reads.
pub(super) struct Weights<'a> {
    pub(super) graph: &'a Graph,
    pub(super) classes: &'a Classes,
    pub(super) trace: &'a Trace,
    /// Whether each index along an axis of a value stands for one token.
    pub(super) is_of_tokens: &'a dyn Fn(ValueId, usize) -> bool,
    /// Whether a softmax is over all axes from its own on, as before opset 13.
    pub(super) takes_rest: bool,
    /// Whether the elements along an axis are computed one by one.
    pub(super) is_elementwise: fn(&str) -> bool,
}

impl Weights<'_> {
    /// Whether a product sums the tokens of one operand with weights that the other one has for each.
    pub(super) fn are_summed_with(&self, node: &Node) -> bool {
        let [Some(left), Some(right)] = *node.inputs() else {
            return false;
        };
        let rank = |v: ValueId| self.trace.get(v).dims.as_ref().map(Vec::len);
        let (Some(a), Some(b)) = (rank(left), rank(right)) else {
            return false;
        };
        if !node.is("MatMul") || a < 2 || b < 2 {
            return false;
        }
        let [left, right] = [(left, [a - 1, a - 2]), (right, [b - 2, b - 1])];
        let pairs = [(left, right), (right, left)].into_iter();
        let mut pairs =
            pairs.map(|((weights, axes), (tokens, [axis, _]))| (weights, axes, (tokens, axis)));
        pairs.any(|(weights, [axis, rows], tokens)| {
            let count = self.size(weights, rows);
            // Of as many sums as tokens, each may be for one place.
            let is_each = count != Some(1) && count == self.size(weights, axis);
            !is_each && self.is_of_each(tokens) && self.are_made_from(tokens, (weights, axis))
        })
    }

    fn is_of_each(&self, (value, axis): (ValueId, usize)) -> bool {
        (self.is_of_tokens)(value, axis)
    }

    /// Whether a softmax along an axis makes these weights, of what each token alone gives: the tokens
    /// that are summed, or others that come from elsewhere.
    fn are_made_from(&self, tokens: (ValueId, usize), (weights, axis): (ValueId, usize)) -> bool {
        let mut stack = vec![(weights, axis, false)];
        let mut seen = FxHashSet::default();
        let mut begins = false;
        while let Some((value, axis, is_behind)) = stack.pop() {
            if !seen.insert((value, axis)) {
                continue;
            }
            if seen.len() > MOST {
                return false;
            }
            let Some(size) = self.size(value, axis) else {
                return false;
            };
            if size == 1 {
                continue;
            }
            if is_behind && (value, axis) == tokens {
                begins = true;
                continue;
            }
            let class = self.classes.of_value(value);
            if !class.has(Class::CONTENT) {
                // A mask is the same whatever the order; a number for each place is not.
                if !class.has(Class::PADDING) || class.has(Class::POSITION) {
                    return false;
                }
                continue;
            }
            match self.before(value, axis) {
                Some((inputs, is_softmax)) => {
                    let next = inputs.into_iter();
                    stack.extend(next.map(|(v, a)| (v, a, is_behind || is_softmax)));
                }
                // Behind what this is computed from, tokens are as they are.
                None if is_behind
                    && self.is_of_each((value, axis))
                    && !self.is_placed(value, axis) =>
                {
                    begins = true;
                }
                None => return false,
            }
        }
        begins
    }

    /// Whether a node combines content with positions to this value, along an axis.
    fn is_placed(&self, value: ValueId, axis: usize) -> bool {
        let Some((id, _)) = self.graph.producer(value) else {
            return false;
        };
        let node = self.graph.node(id);
        let is_position = |v: &ValueId| {
            let class = self.classes.of_value(*v);
            class.has(Class::POSITION) && !class.has(Class::CONTENT)
        };
        if let ("MatMul", Some(queries), Some(keys)) = (node.op(), node.input(0), node.input(1))
            && let Some([.., rows, _]) = self.trace.get(queries).dims.as_deref()
            && self.trace.get(value).dims.as_ref().map(Vec::len) == Some(axis + 1)
        {
            // One query is the same for all tokens.
            return is_position(&keys) || *rows > 1 && is_position(&queries);
        }
        node.op().contains("Rotary") || node.inputs().iter().flatten().any(is_position)
    }

    fn size(&self, value: ValueId, axis: usize) -> Option<usize> {
        self.trace.get(value).dims.as_ref()?.get(axis).copied()
    }

    /// What a value is computed from index by index along an axis, with that axis, and whether by a
    /// softmax over it; `None` where that is not known.
    fn before(&self, value: ValueId, axis: usize) -> Option<(Vec<(ValueId, usize)>, bool)> {
        let (id, output) = self.graph.producer(value)?;
        let node = self.graph.node(id);
        let lane = |slot: usize| {
            let lane = Lane::of_sequence(axis);
            Some(back(self.graph, self.trace, id, output, slot, lane)?.sequence)
        };
        if !node.domain().is_empty() {
            return None;
        }
        let first = node.input(0)?;
        let dims = self.trace.get(first).dims.as_ref()?;
        let rank = dims.len();
        if node.is("Softmax") {
            let default = if self.takes_rest { 1 } else { -1 };
            let own = wrap(node.int("axis").ok()?.unwrap_or(default), rank)?;
            let alone = !self.takes_rest || dims[own + 1..].iter().all(|n| *n == 1);
            return alone.then(|| (vec![(first, axis)], own == axis));
        }
        if node.is("MatMul") {
            let weights = node.input(1)?;
            let mixes = axis + 1 == rank || !self.classes.of_value(weights).is_constant();
            return (!mixes).then(|| (vec![(first, axis)], false));
        }
        if is_layout(node.op()) || is_copy(node.op()) {
            return Some((vec![(first, lane(0)?)], false));
        }
        if !(self.is_elementwise)(node.op()) {
            return None;
        }
        let mut inputs = vec![];
        let to = self.trace.get(value).dims.as_ref()?.len();
        for input in node.inputs().iter().flatten().copied() {
            let dims = self.trace.get(input).dims.as_ref()?;
            // What has no such axis is the same for all tokens.
            if let Some(at) = (axis + dims.len()).checked_sub(to) {
                inputs.push((input, at));
            }
        }
        Some((inputs, false))
    }
}
