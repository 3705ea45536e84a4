//! What a graph of one length still holds of it when everything else follows: outputs, numbers that positions
//! are compared with, and lengths that an operator is told.

use posenc_ir::{NodeId, ValueId};

use super::broadcast::is_comparison;
use super::counts::may_follow;
use super::elements;
use super::rules::is_of_length;
use super::walk::Walk;
use crate::error::{Refusal, RewriteError};
use crate::graph::dataflow::Class;

/// Outputs of so many numbers may be counts.
const FEW: usize = 8;

impl Walk<'_> {
    /// Refuses what may be made for the `old` length and does not follow.
    pub(super) fn check_leftovers(&self, old: usize) -> Result<(), RewriteError> {
        let graph = self.context.graph();
        for output in graph.scope(graph.main()).outputs() {
            if self.is_left(*output, old) {
                let name = graph.name(*output);
                let why = format!(
                    "the output {name} is made for {old} tokens, and does not follow their number"
                );
                return Err(Refusal::unsupported(why).into());
            }
        }
        for id in graph.scope(graph.main()).nodes().iter().copied() {
            self.check_positions(id, old)?;
            self.check_told(id, old)?;
        }
        Ok(())
    }

    /// Whether an output depends on nothing that follows, and has as many elements as there were tokens or
    /// counts them.
    fn is_left(&self, output: ValueId, old: usize) -> bool {
        if self.context.is_content(output) || self.values.contains_key(&output) {
            return false;
        }
        let known = self.context.found.trace.get(output);
        let is_long = self
            .context
            .dims(output)
            .is_some_and(|dims| dims.contains(&old));
        let few = known.elements().is_some_and(|count| count <= FEW);
        let numbers = elements::read(known).filter(|_| few);
        is_long || numbers.is_some_and(|all| all.iter().any(|n| may_follow(*n, old)))
    }

    /// Refuses a few numbers that positions, masks or integers of content meet, and that may follow from how many
    /// tokens there were.
    fn check_positions(&self, id: NodeId, old: usize) -> Result<(), RewriteError> {
        let node = self.context.graph().node(id);
        if !meets(node.op()) || !node.domain().is_empty() {
            return Ok(());
        }
        let inputs = || node.inputs().iter().flatten().copied();
        if !inputs().any(|value| self.is_place(value)) {
            return Ok(());
        }
        // Ids are compared with words.
        let compares_ids =
            node.is("Equal") && inputs().any(|value| self.context.found.ports.is_input(value));
        for value in inputs().filter(|value| !self.values.contains_key(value) && !compares_ids) {
            let known = self.context.found.trace.get(value);
            let is_constant = self.context.found.classes.of_value(value).is_constant();
            // Several numbers with a fraction are the slopes of heads.
            let most = match self.context.dtype(value).is_int() {
                true => FEW,
                false => 1,
            };
            let are_few = known.elements().is_some_and(|count| count <= most);
            let numbers = elements::read(known).filter(|_| is_constant && are_few);
            let is_meant = |n: &&f64| is_of_length(n.abs(), old) || may_follow(**n, old);
            let Some(number) = numbers.iter().flatten().find(is_meant).copied() else {
                continue;
            };
            let why = format!(
                "this {} reads {number} beside numbers of tokens, and it may follow from the {old} tokens of the \
                 graph",
                node.op()
            );
            return Err(self.refuse(id, why));
        }
        Ok(())
    }

    /// Whether a value tells places or numbers of tokens: what depends on positions or on the mask, and integers
    /// that depend on content.
    fn is_place(&self, value: ValueId) -> bool {
        let class = self.context.found.classes.of_value(value);
        match class.has(Class::CONTENT) {
            true => self.context.dtype(value).is_int(),
            false => {
                self.axes.contains_key(&value)
                    || class.has(Class::POSITION)
                    || class.has(Class::PADDING)
            }
        }
    }

    /// Refuses a recurrence that is told the length of each sequence by numbers.
    fn check_told(&self, id: NodeId, old: usize) -> Result<(), RewriteError> {
        let node = self.context.graph().node(id);
        if !matches!(node.op(), "LSTM" | "GRU" | "RNN") || !node.domain().is_empty() {
            return Ok(());
        }
        let follows = node.input(0).is_some_and(|v| self.axes.contains_key(&v));
        let Some(told) = node
            .input(4)
            .filter(|v| follows && !self.values.contains_key(v))
        else {
            return Ok(());
        };
        let numbers = elements::read(self.context.found.trace.get(told));
        if numbers.is_some_and(|all| all.iter().all(|n| *n != old as f64)) {
            return Ok(());
        }
        let why = format!(
            "this {} is told the lengths of sequences by numbers",
            node.op()
        );
        Err(self.refuse(id, why))
    }
}

/// Whether an operator of this name compares numbers or computes with them.
fn meets(op: &str) -> bool {
    let computes = [
        "Add", "Sub", "Mul", "Div", "Mod", "Pow", "Min", "Max", "Clip", "Trilu", "OneHot",
    ];
    is_comparison(op) || computes.contains(&op)
}
