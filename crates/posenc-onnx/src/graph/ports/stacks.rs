//! Models of two stacks, whose sequences have lengths of their own.

use posenc_ir::{Dim, Graph, ValueId};
use rustc_hash::FxHashSet;

use super::counts::{compared_places, less_than_tokens};
use super::symbols::Axis;
use super::{Lengths, Port, Ports};

/// Values between the sizes of inputs and a place.
const FEW: usize = 256;

impl Ports {
    /// The longest sequence of a run, which may be that of another stack.
    pub(crate) fn longest(&self, at: Lengths) -> usize {
        let encodes = self.symbols.values().any(|axis| *axis == Axis::Encoder);
        at.past + at.sequence + usize::from(encodes && !self.reading.tied)
    }

    /// Whether an input has an axis of the longest sequence, where that is of another stack.
    pub(crate) fn is_of_other_stack(&self, port: &Port) -> bool {
        port.dims.iter().any(|dim| match dim {
            Dim::Symbol(symbol) => self.symbols.get(symbol) == Some(&Axis::Encoder),
            _ => false,
        })
    }

    /// Tokens of the stack whose sizes a value is computed from; those of the new tokens and the cache where that is
    /// not clear.
    pub(crate) fn tokens_behind(&self, graph: &Graph, value: ValueId, at: Lengths) -> usize {
        let (own, longest) = (at.past + at.sequence, self.longest(at));
        if longest == own {
            return own;
        }
        let mut stack = vec![value];
        let mut seen = FxHashSet::default();
        let mut is_other = false;
        while let Some(value) = stack.pop() {
            if !seen.insert(value) {
                continue;
            }
            if seen.len() > FEW {
                return own;
            }
            if let Some((id, _)) = graph.producer(value) {
                stack.extend(graph.node(id).inputs().iter().flatten());
            } else if let Some(port) = self.iter().find(|port| port.value == value) {
                if !self.is_of_other_stack(port) {
                    return own;
                }
                is_other = true;
            }
        }
        if is_other { longest } else { own }
    }

    /// The number of a full sequence in an input of lengths.
    pub(crate) fn counted(&self, graph: &Graph, port: &Port, at: Lengths) -> usize {
        if let Some(less) = less_than_tokens(graph, port.value) {
            return (at.past + at.sequence).saturating_sub(less);
        }
        let places = compared_places(graph, port.value).into_iter();
        let tokens = places.map(|place| self.tokens_behind(graph, place, at));
        tokens.max().unwrap_or(at.past + at.sequence)
    }
}
