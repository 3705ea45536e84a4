//! Where axes that follow the image meet numbers that do not: weights over tokens, and numbers for each
//! of them. As many patches as before on another grid are other patches.

use posenc_ir::{Node, NodeId};

use super::broadcast::is_comparison;
use super::walk::Walk;
use crate::error::RewriteError;
use crate::graph::extent::Extent;
use crate::graph::lane::wrap;
use crate::graph::operators::{is_elementwise, is_norm};
use crate::graph::product::Letters;

impl Walk<'_> {
    /// Refuses numbers that are one for each token, or weights over tokens.
    pub(super) fn check_meets(&mut self, id: NodeId) -> Result<(), RewriteError> {
        let graph = self.context.graph();
        let node = graph.node(id);
        if node.domain().is_empty() && (is_elementwise(node.op()) || is_comparison(node.op())) {
            return self.widen_inputs(id);
        }
        let inputs: Vec<Vec<Extent>> = (0..node.inputs().len())
            .filter_map(|slot| self.axes_in(id, slot))
            .collect();
        let meets = if let Some(letters) = Letters::of(graph, &self.context.found.trace, id) {
            let axis = |operand: usize, letter: &char| {
                let names = &letters.operands[operand];
                inputs
                    .get(operand)?
                    .get(names.iter().position(|n| n == letter)?)
            };
            let own = letters.operands[0].iter();
            own.into_iter()
                .any(|letter| one_changes(axis(0, letter), axis(1, letter)))
        } else {
            let first = inputs.first().map_or(&[][..], Vec::as_slice);
            let changes = |axis: usize| first.get(axis).is_some_and(Extent::changes);
            match (node.op(), node.domain()) {
                (op, "") if is_parameterized(op) => false,
                // Masks that the graph computes of sizes are written part by part.
                ("ScatterND", "") => node.output(0).is_none_or(|v| self.context.is_content(v)),
                ("Concat", "") => {
                    let along = node.int("axis").ok().flatten();
                    let along = along.and_then(|axis| wrap(axis, first.len()));
                    aligned(&inputs, along.map(|along| first.len() - along))
                }
                ("Gemm", "") => {
                    let is_set = |name: &str| matches!(node.int(name), Ok(Some(n)) if n != 0);
                    let [a, b] = [
                        usize::from(!is_set("transA")),
                        usize::from(is_set("transB")),
                    ];
                    let weights = inputs.get(1).and_then(|axes| axes.get(b));
                    let biases = inputs.get(2);
                    let biases = biases.and_then(|axes| axes.get(axes.len().checked_sub(2)?));
                    one_changes(first.get(a), weights) || one_changes(first.get(1 - a), biases)
                }
                ("MatMulInteger" | "QLinearMatMul", "")
                | ("DynamicQuantizeMatMul" | "MatMulNBits", _) => {
                    first.last().is_some_and(Extent::changes)
                }
                // The channels.
                ("Conv" | "ConvInteger" | "QLinearConv" | "ConvTranspose", "") => changes(1),
                (
                    "BatchNormalization" | "InstanceNormalization" | "GroupNormalization" | "LRN",
                    "",
                ) => changes(1),
                (_, "") if is_norm(node) => normalized(node, first).iter().any(Extent::changes),
                _ => aligned(&inputs, None),
            }
        };
        if meets {
            return Err(self.refuse_numbers(id));
        }
        Ok(())
    }

    /// The refusal of numbers for each token.
    pub(super) fn refuse_numbers(&self, id: NodeId) -> RewriteError {
        let op = self.context.graph().node(id).op();
        let why = format!(
            "this {op} reads numbers for each token, and what these are for {} is not known",
            self.wanted.other()
        );
        self.refuse(id, why)
    }
}

/// Whether of two equal axes one follows the image, and the other does not.
fn one_changes(a: Option<&Extent>, b: Option<&Extent>) -> bool {
    let (Some(a), Some(b)) = (a, b) else {
        return false;
    };
    a.changes() != b.changes() && a.before() == b.before() && a.before() > 1
}

/// Whether among axes of the same place from the last one follows the image, and another does not;
/// `besides` is a place that does not count.
fn aligned(inputs: &[Vec<Extent>], besides: Option<usize>) -> bool {
    let rank = inputs.iter().map(Vec::len).max().unwrap_or(0);
    let mut places = (1..=rank).filter(|place| Some(*place) != besides);
    places.any(|place| {
        let axis = |own: &Vec<Extent>| Some(own.get(own.len().checked_sub(place)?)?.clone());
        let all: Vec<Extent> = inputs.iter().filter_map(axis).collect();
        all.iter()
            .any(|a| all.iter().any(|b| one_changes(Some(a), Some(b))))
    })
}

/// The axes over which a norm runs.
fn normalized<'a>(node: &Node, axes: &'a [Extent]) -> &'a [Extent] {
    let axis = node.int("axis").ok().flatten().unwrap_or(-1);
    let from = wrap(axis, axes.len()).unwrap_or(0);
    &axes[from..]
}

/// Operators whose further inputs are parameters, and no numbers that meet those of the first.
fn is_parameterized(op: &str) -> bool {
    let moves = [
        "Reshape",
        "Expand",
        "Tile",
        "Slice",
        "Split",
        "Squeeze",
        "Unsqueeze",
        "Pad",
        "Resize",
        "Upsample",
        "Gather",
        "GatherElements",
        "GatherND",
        "ConstantOfShape",
        "Range",
        "TopK",
        "CumSum",
        "Trilu",
        "OneHot",
    ];
    moves.contains(&op) || op.starts_with("Reduce")
}
