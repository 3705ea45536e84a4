//! Tokens that are put beside others by padding both and adding them: a concatenation, spelled as a
//! sum.

use posenc_ir::{Node, ValueId};

use super::Candidate;
use crate::attention::stream::back;
use crate::graph::operators::is_copy;

impl Candidate<'_> {
    /// Whether the rows are zero wherever any other summand may be something else than zero: they are
    /// tokens of their own, and no position of others.
    pub(crate) fn is_beside(&self) -> bool {
        let (graph, entry) = (self.graph(), self.addition.entry);
        let Some(rows) = &self.rows else {
            return false;
        };
        let filled: Vec<bool> = rows
            .numbers
            .rows()
            .into_iter()
            .map(|row| row.iter().any(|x| *x != 0.0))
            .collect();
        let node = graph.node(entry.node);
        let summands = node.inputs().iter().enumerate();
        let mut others = summands.filter(|(slot, _)| *slot != entry.slot());
        others.all(|(slot, other)| {
            let kept = other.and_then(|v| self.kept(v, slot));
            kept.is_some_and(|kept| {
                kept.len() == filled.len() && kept.iter().zip(&filled).all(|(a, b)| !(a & b))
            })
        })
    }

    /// Which tokens of a summand are not padded with zeros; `None` where it is not padded along its
    /// tokens.
    fn kept(&self, summand: ValueId, slot: usize) -> Option<Vec<bool>> {
        let (graph, trace) = (self.graph(), &self.found.trace);
        let entry = self.addition.entry;
        let tokens = back(graph, trace, entry.node, 0, slot, self.addition.tokens)?;
        let mut axes = tokens.iter();
        let (axis, None) = (axes.next()?, axes.next()) else {
            return None;
        };
        let mut value = summand;
        let node = loop {
            let node = graph.node(graph.producer(value)?.0);
            match self.keeps_zeros(node) {
                Some(before) => value = before,
                None => break node,
            }
        };
        let mode = node.string("mode").ok().flatten();
        let zeros = match node.input(2) {
            Some(fill) => trace.get(fill).to_f64()?.iter().all(|x| *x == 0.0),
            None => true,
        };
        let whole = node.input(3).is_none();
        if !node.is("Pad") || mode.is_some_and(|mode| mode != "constant") || !zeros || !whole {
            return None;
        }
        let dims = trace.get(value).dims.as_deref()?;
        let pads: Vec<i64> = trace
            .get(node.input(1)?)
            .to_i64()?
            .iter()
            .copied()
            .collect();
        let at = |i: usize| usize::try_from(*pads.get(i)?).ok();
        let (before, after) = (at(axis)?, at(axis + dims.len())?);
        let end = dims.get(axis)?.checked_sub(after)?;
        Some(
            (0..dims[axis])
                .map(|i| (before..end).contains(&i))
                .collect(),
        )
    }

    /// The input of a node that is zero wherever its output was padded with zeros.
    fn keeps_zeros(&self, node: &Node) -> Option<ValueId> {
        let trace = &self.found.trace;
        let is_zero = |v: ValueId| {
            let numbers = trace.get(v).to_f64();
            numbers.is_some_and(|numbers| numbers.iter().all(|x| *x == 0.0))
        };
        let [first, second] = [node.input(0), node.input(1)];
        let is_content = |v: ValueId| self.found.is_content(v);
        let (slot, value, other) = match (first?, second) {
            (value, other) if is_copy(node.op()) || is_content(value) => (0, value, other),
            (other, value) => (1, value?, Some(other)),
        };
        let other = other.filter(|v| !is_content(*v));
        let rank = |v: ValueId| trace.get(v).dims.as_ref().map(Vec::len);
        if rank(value) != rank(node.output(0)?) {
            return None;
        }
        let keeps = match node.op() {
            op if is_copy(op) => true,
            "Mul" => other.is_some(),
            "Div" => slot == 0 && other.is_some(),
            "Add" => other.is_some_and(is_zero),
            "Sub" => slot == 0 && other.is_some_and(is_zero),
            _ => false,
        };
        keeps.then_some(value)
    }
}
