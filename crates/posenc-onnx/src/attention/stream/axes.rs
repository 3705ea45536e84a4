//! The axes of tokens in a value, from a node's output back to its inputs.
//!
//! Other than a lane, which follows one axis and the features of a head, these are sets: an axis
//! may be folded into another, or be split into rows and columns of patches.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Node, NodeId};

use crate::graph::einsum::Equation;
use crate::graph::lane::wrap;
use crate::graph::operators::{is_projection, is_reshape};

/// A set of axes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Tokens(u64);

impl Tokens {
    /// One axis.
    pub(crate) fn one(axis: usize) -> Self {
        Self::default().with(axis)
    }

    /// The set with one axis more.
    pub(crate) fn with(self, axis: usize) -> Self {
        Self(self.0 | 1 << axis.min(63))
    }

    /// The set without an axis.
    pub(crate) fn without(self, axis: usize) -> Self {
        Self(self.0 & !Self::one(axis).0)
    }

    /// Whether an axis is in the set.
    pub(crate) fn has(self, axis: usize) -> bool {
        self.0 & 1 << axis.min(63) != 0
    }

    /// The axes of the set.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        (0..64).filter(move |a| self.has(*a))
    }

    /// Each axis moved; what moves nowhere is left out. `None` where nothing is left.
    fn moved(self, to: impl Fn(usize) -> Option<usize>) -> Option<Self> {
        let moved = self.iter().filter_map(to).fold(Self::default(), Self::with);
        (moved != Self::default()).then_some(moved)
    }
}

/// The inputs of a projection that are multiplied; the others are scales and the like. `None` for
/// other operators.
pub(crate) fn operands(node: &Node) -> Option<[usize; 2]> {
    match node.op() {
        "QLinearMatMul" | "QLinearConv" | "QGemm" => Some([0, 3]),
        _ => is_projection(node).then_some([0, 1]),
    }
}

/// The axes of tokens of input `slot` of a node, given those of its output.
pub(crate) fn back(
    graph: &Graph,
    trace: &Trace,
    id: NodeId,
    output: usize,
    slot: usize,
    tokens: Tokens,
) -> Option<Tokens> {
    let node = graph.node(id);
    let from = trace.get(node.input(slot)?).dims.as_deref()?;
    let to = trace.get(node.output(output)?).dims.as_deref()?;
    let aligned = |a: usize| {
        let axis = (a + from.len()).checked_sub(to.len())?;
        (from.get(axis)? == to.get(a)?).then_some(axis)
    };
    match node.op() {
        "Transpose" => {
            let perm = node.ints("perm").ok()?;
            tokens.moved(|a| match perm {
                Some(perm) => usize::try_from(*perm.get(a)?).ok(),
                None => from.len().checked_sub(a + 1),
            })
        }
        op if is_reshape(op) && slot == 0 => regrouped(from, to, tokens),
        "Concat" | "Split" | "Slice" | "Pad" | "Resize" | "ScatterND" | "ScatterElements"
        | "TensorScatter" | "Upsample" => (from.len() == to.len()).then_some(tokens),
        "Gather" if slot == 0 => {
            let axis = wrap(node.int("axis").ok()?.unwrap_or(0), from.len())?;
            let picked = trace.get(node.input(1)?).dims.as_ref()?.len();
            tokens.moved(|a| match a {
                _ if a < axis => Some(a),
                _ if a >= axis + picked => Some(a + 1 - picked),
                _ => Some(axis),
            })
        }
        "Einsum" => {
            let Equation { operands, result } = Equation::of(graph, trace, id)?;
            let own = operands.get(slot)?;
            tokens.moved(|a| {
                let letter = result.get(a)?;
                own.iter().position(|c| c == letter)
            })
        }
        _ if is_projection(node) => projected(node, slot, from, to, tokens),
        _ if from == to => Some(tokens),
        // After broadcasting.
        "Add"
        | "Sub"
        | "Mul"
        | "Div"
        | "Sum"
        | "Where"
        | "Pow"
        | "Max"
        | "Min"
        | "Expand"
        | "Tile"
        | "QLinearAdd"
        | "BiasAdd"
        | "SkipLayerNormalization"
        | "SkipSimplifiedLayerNormalization" => tokens.moved(aligned),
        // Pools and the like leave every axis in its place.
        "MaxPool" | "AveragePool" | "SpaceToDepth" | "DepthToSpace" => Some(tokens),
        _ => None,
    }
}

/// Through a product with weights or a convolution.
fn projected(
    node: &Node,
    slot: usize,
    from: &[usize],
    to: &[usize],
    tokens: Tokens,
) -> Option<Tokens> {
    let flag = |name: &str| matches!(node.int(name), Ok(Some(n)) if n != 0);
    match node.op() {
        op if op.ends_with("Gemm") && slot == 2 => tokens.moved(|a| {
            let axis = (a + from.len()).checked_sub(2)?;
            (from.get(axis)? == to.get(a)?).then_some(axis)
        }),
        op if op.ends_with("Gemm") => match slot {
            0 => tokens.moved(|a| (a == 0).then_some(usize::from(flag("transA")))),
            1 => tokens.moved(|a| (a == 1).then_some(usize::from(!flag("transB")))),
            _ => None,
        },
        op if op.ends_with("Conv") || op == "ConvInteger" => tokens.moved(|a| {
            let is_channel = match op {
                "NhwcConv" => a + 1 == to.len(),
                _ => a == 1,
            };
            (slot == 0 && !is_channel).then_some(a)
        }),
        // Batch axes stay; of the last two, the content has one and the weights the other.
        _ => {
            let first = slot == 0;
            let transposed = flag(if first { "transA" } else { "transB" });
            tokens.moved(|a| {
                let axis = (a + from.len()).checked_sub(to.len())?;
                let from_end = to.len().checked_sub(a)?;
                match (from_end, first, transposed) {
                    (1, true, _) | (2, false, _) => None,
                    (2, true, true) => Some(axis + 1),
                    (1, false, true) => axis.checked_sub(1),
                    _ => Some(axis),
                }
            })
        }
    }
}

/// Through a change of shape: both shapes fall into the shortest runs of equal products, and
/// whatever shares a run with tokens is one of their axes.
fn regrouped(from: &[usize], to: &[usize], tokens: Tokens) -> Option<Tokens> {
    let (mut i, mut j) = (0, 0);
    let mut found = Tokens::default();
    while i < from.len() || j < to.len() {
        let (first, other) = (i, j);
        let (mut a, mut b) = (1usize, 1usize);
        loop {
            if a <= b && i < from.len() {
                a = a.checked_mul(from[i])?;
                i += 1;
            } else if j < to.len() {
                b = b.checked_mul(to[j])?;
                j += 1;
            } else {
                break;
            }
            if a == b && i > first && j > other {
                break;
            }
        }
        if (other..j).any(|axis| tokens.has(axis)) {
            found = (first..i)
                .filter(|axis| from[*axis] > 1)
                .fold(found, Tokens::with);
        }
    }
    (found != Tokens::default()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_followed_into_merged_axes_and_out_again() {
        type Case = (
            &'static [usize],
            &'static [usize],
            &'static [usize],
            &'static [usize],
        );
        let cases: [Case; 8] = [
            (&[2, 7, 24], &[2, 7, 3, 8], &[1], &[1]),
            (&[14, 24], &[2, 7, 3, 8], &[1], &[0]),
            (&[2, 7, 24], &[14, 24], &[0], &[0, 1]),
            (&[2, 3, 7, 8], &[6, 7, 8], &[1], &[2]),
            // Patches in rows and columns, and windows of them.
            (&[2, 24, 4, 4], &[2, 24, 16], &[2], &[2, 3]),
            (&[2, 8, 8, 5], &[2, 2, 4, 2, 4, 5], &[2, 4], &[1, 2]),
            (&[1, 1, 7, 24], &[7, 24], &[0], &[2]),
            (&[7, 24], &[1, 1, 7, 24], &[2], &[0]),
        ];
        for (from, to, tokens, want) in cases {
            let set = |axes: &[usize]| axes.iter().copied().fold(Tokens::default(), Tokens::with);
            assert_eq!(
                regrouped(from, to, set(tokens)),
                Some(set(want)),
                "{from:?} {to:?} {tokens:?}"
            );
        }
        assert_eq!(
            regrouped(&[2, 7, 24], &[2, 7, 3, 8], Tokens::default()),
            None
        );
    }
}
