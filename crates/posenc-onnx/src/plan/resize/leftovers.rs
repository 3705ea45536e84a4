//! What a graph of one length still holds of it when everything else follows: outputs, numbers that positions
//! are compared with, and lengths that an operator is told.

use posenc_ir::{NodeId, ValueId};

use super::counts::may_follow;
use super::elements;
use super::rules::is_of_length;
use super::walk::Walk;
use crate::error::{Refusal, RewriteError};

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

    /// Refuses a number that positions meet and that may follow from how many there are.
    fn check_positions(&self, id: NodeId, old: usize) -> Result<(), RewriteError> {
        let node = self.context.graph().node(id);
        let meets = matches!(
            node.op(),
            "Less"
                | "LessOrEqual"
                | "Greater"
                | "GreaterOrEqual"
                | "Equal"
                | "Add"
                | "Sub"
                | "Mul"
                | "Div"
                | "Mod"
                | "Min"
                | "Max"
                | "Clip"
                | "Pow"
                | "Trilu"
                | "OneHot"
        );
        if !meets || !node.domain().is_empty() {
            return Ok(());
        }
        let inputs = || node.inputs().iter().flatten();
        let follows =
            |value: &ValueId| !self.context.is_content(*value) && self.axes.contains_key(value);
        if !inputs().any(follows) {
            return Ok(());
        }
        for value in inputs().filter(|value| !self.values.contains_key(value)) {
            let known = self.context.found.trace.get(*value);
            let is_constant = self.context.found.classes.of_value(*value).is_constant();
            let one = elements::read(known).filter(|all| is_constant && all.len() == 1);
            let Some(number) = one.and_then(|all| all.first().copied()) else {
                continue;
            };
            if is_of_length(number.abs(), old) || may_follow(number, old) {
                let why = format!(
                    "positions meet {number} in this {}, which may follow from the {old} tokens of the graph",
                    node.op()
                );
                return Err(self.refuse(id, why));
            }
        }
        Ok(())
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
