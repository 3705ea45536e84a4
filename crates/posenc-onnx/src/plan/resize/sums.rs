//! Sums over an axis of another length: of more terms they are larger.

use posenc_ir::{NodeId, Use};

use super::walk::Walk;
use crate::graph::einsum::Equation;
use crate::graph::extent::Extent;
use crate::graph::reduction;

impl Walk<'_> {
    /// Whether a node of the standard domain sums over what changes, and the sum is not what its terms are
    /// divided by.
    pub(super) fn sums(&self, id: NodeId, axes: &[Extent]) -> bool {
        let graph = self.context.graph();
        let node = graph.node(id);
        let changes = |axis: &usize| axes[*axis].changes();
        match node.op() {
            "ReduceSum" | "ReduceProd" | "ReduceL1" | "ReduceL2" | "ReduceSumSquare"
            | "ReduceLogSum" | "ReduceLogSumExp" => {
                let along = reduction::axes(node, axes.len(), |_| self.list(id, 1));
                along.is_none_or(|along| along.iter().any(changes)) && !self.divides_its_terms(id)
            }
            "GlobalLpPool" => (2..axes.len()).any(|axis| changes(&axis)),
            "Einsum" if node.inputs().len() == 1 => {
                let equation = Equation::of(graph, &self.context.found.trace, id);
                equation.is_none_or(|equation| {
                    let letters = equation.operands[0].iter().enumerate();
                    let mut summed =
                        letters.filter(|(_, letter)| !equation.result.contains(letter));
                    summed.any(|(axis, _)| changes(&axis))
                })
            }
            _ => false,
        }
    }

    /// Whether nothing reads a sum but the division of its terms by it.
    fn divides_its_terms(&self, id: NodeId) -> bool {
        let graph = self.context.graph();
        let node = graph.node(id);
        let divides = |at: &Use| {
            let reader = graph.node(at.node);
            reader.is("Div") && at.slot() == 1 && reader.input(0) == node.input(0)
        };
        node.output(0).is_some_and(|sum| {
            let uses = graph.uses(sum);
            !graph.value(sum).is_output() && !uses.is_empty() && uses.iter().all(divides)
        })
    }
}
