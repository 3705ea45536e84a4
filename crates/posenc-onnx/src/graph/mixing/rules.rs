//! What operators do to the tokens that their inputs depend on.

mod layout;
mod products;

use std::sync::LazyLock;

use posenc_ir::eval::Trace;
use posenc_ir::{Model, Node, NodeId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::sets::Sets;
use crate::graph::bodies::states;
use crate::graph::dataflow::Classes;
use crate::graph::lane::wrap;
use crate::graph::operators::{is_norm, is_rotary, is_skip_norm};
use crate::graph::reduction;

/// How an operator mixes tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mixing {
    /// A mean, a sum or another statistic over tokens, or one token that content selects.
    Pooling,
    /// Tokens near each other, by weights.
    Convolution,
    /// One token after another.
    Recurrence,
    /// Anything else.
    Other,
}

/// What recognized attention reads of other tokens than the query's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// Inputs of nodes, by slot, that are keys and values.
    pub(crate) keys_and_values: FxHashSet<(NodeId, usize)>,
    /// Fused operators, with the slot of their queries.
    pub(crate) fused: FxHashMap<NodeId, usize>,
}

/// Whether a `Scan` takes its slices, and gives its results, in different orders.
pub(super) fn turns_round(node: &Node) -> bool {
    let directions = |name: &str| node.ints(name).ok().flatten().unwrap_or_default();
    let inputs = directions("scan_input_directions");
    let outputs = directions("scan_output_directions");
    let carried = states(node);
    let scanned = node.inputs().len() - carried;
    let stacked = node.outputs().len().saturating_sub(carried);
    let backwards = |all: &[i64], at: usize| all.get(at).is_some_and(|d| *d != 0);
    let first = backwards(inputs, 0);
    (0..scanned).any(|at| backwards(inputs, at) != first)
        || (0..stacked).any(|at| backwards(outputs, at) != first)
}

/// What a node does: the tokens of its outputs, and whether it mixes any.
pub(super) struct Step {
    /// By output; outputs beyond these depend on no token.
    pub(super) outputs: Vec<Option<Sets>>,
    pub(super) mixing: Option<Mixing>,
}

impl Step {
    /// Outputs that depend on no token.
    pub(super) fn nothing() -> Self {
        Self {
            outputs: vec![],
            mixing: None,
        }
    }

    /// A token that content selects: what is computed of it belongs to none.
    fn selection() -> Self {
        Self {
            outputs: vec![],
            mixing: Some(Mixing::Pooling),
        }
    }

    fn plain(sets: Sets) -> Self {
        Self::mixed(sets, None)
    }

    fn mixed(sets: Sets, mixing: Option<Mixing>) -> Self {
        Self {
            outputs: vec![Some(sets)],
            mixing,
        }
    }
}

/// Whether an operator computes each element from those at its place, after broadcasting.
pub(super) fn is_elementwise(op: &str) -> bool {
    static KNOWN: LazyLock<FxHashSet<&str>> =
        LazyLock::new(|| ELEMENTWISE.iter().copied().collect());
    KNOWN.contains(op)
}

/// The operators of [`is_elementwise`].
const ELEMENTWISE: &[&str] = &[
    "Abs",
    "Acos",
    "Acosh",
    "Add",
    "And",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "BatchNormalization",
    "BiasAdd",
    "BiasGelu",
    "BiasSplitGelu",
    "BitShift",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "Cast",
    "CastLike",
    "Ceil",
    "Celu",
    "Clip",
    "Cos",
    "Cosh",
    "DequantizeLinear",
    "Div",
    "Dropout",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "FastGelu",
    "Floor",
    "Gelu",
    "Greater",
    "GreaterOrEqual",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "IsInf",
    "IsNaN",
    "LeakyRelu",
    "Less",
    "LessOrEqual",
    "Log",
    "Max",
    "Mean",
    "Min",
    "Mish",
    "Mod",
    "Mul",
    "Neg",
    "Not",
    "Or",
    "PRelu",
    "Pow",
    "QLinearAdd",
    "QLinearLeakyRelu",
    "QLinearMul",
    "QLinearSigmoid",
    "QuantizeLinear",
    "QuickGelu",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Sub",
    "Sum",
    "Swish",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
    "Trilu",
    "Where",
    "Xor",
];

/// The rules of operators, on the values of a trial run.
pub(super) struct Rules<'a> {
    pub(super) model: &'a Model,
    pub(super) trace: &'a Trace,
    pub(super) classes: &'a Classes,
    pub(super) known: &'a Known,
}

impl Rules<'_> {
    fn dims(&self, value: Option<ValueId>) -> Option<&[usize]> {
        self.trace.get(value?).dims.as_deref()
    }

    /// An operator whose elements may depend on all of its inputs.
    pub(super) fn unknown(&self, id: NodeId, inputs: &[Option<&Sets>]) -> Step {
        let node = self.model.graph().node(id);
        let parts = || inputs.iter().copied().flatten();
        let all = parts().fold(0, |all, sets| all | sets.all());
        let mixed = parts().all(|sets| sets.all() != all || sets.varies());
        let set = |out: &Option<ValueId>| {
            let rank = self.dims(*out).map_or(0, <[usize]>::len);
            Some(Sets::uniform(rank, all))
        };
        Step {
            outputs: node.outputs().iter().map(set).collect(),
            mixing: mixed.then_some(Mixing::Other),
        }
    }

    /// What a known operator does; `None` for others, and where dimensions are unknown.
    pub(super) fn step(&self, id: NodeId, inputs: &[Option<&Sets>]) -> Option<Step> {
        let node = self.model.graph().node(id);
        let first = inputs.first().copied().flatten();
        let op = node.op();
        if let Some(query) = self.known.fused.get(&id) {
            return self.fused(id, inputs.get(*query).copied().flatten()?);
        }
        // Of the second input the type alone matters.
        if node.is("CastLike") {
            return Some(first.map_or_else(Step::nothing, |sets| Step::plain(sets.clone())));
        }
        if matches!(node.domain(), "" | "com.microsoft") && is_elementwise(op) {
            return elementwise(inputs.iter().copied().flatten());
        }
        if op == "EmbedLayerNormalization" {
            let sets = elementwise(inputs.iter().take(2).copied().flatten())?
                .outputs
                .remove(0)?;
            let rank = sets.rank();
            return Some(Step::plain(sets.with_axis(rank)));
        }
        if is_norm(node) || matches!(op, "Softmax" | "LogSoftmax" | "Hardmax" | "LRN") {
            return self.normalized(id, inputs);
        }
        match (node.domain(), op) {
            ("", _) if op.starts_with("Reduce") || matches!(op, "ArgMax" | "ArgMin") => {
                self.reduced(id, first?)
            }
            (
                "" | "com.microsoft.nchwc",
                "GlobalAveragePool" | "GlobalMaxPool" | "GlobalLpPool",
            ) => {
                let axes: Vec<usize> = (2..first?.rank()).collect();
                Some(pooled(first?.over(&axes)))
            }
            ("", "TopK") => {
                let (sets, mixed) = first?.over(&[self.axis(node, -1)?]);
                let mixing = mixed.then_some(Mixing::Pooling);
                Some(Step {
                    outputs: vec![Some(sets.clone()), Some(sets)],
                    mixing,
                })
            }
            ("", "CumSum") => {
                let axis = self.trace.get(node.input(1)?).scalar_i64()?;
                let (sets, mixed) = first?.over(&[wrap(axis, first?.rank())?]);
                Some(Step::mixed(sets, mixed.then_some(Mixing::Other)))
            }
            ("", "DFT") => {
                // The axis is an attribute before opset 20; the last one holds both parts of a number.
                let rank = first?.rank();
                let named = match node.input(2) {
                    Some(axis) => self.trace.get(axis).scalar_i64()?,
                    None => node.int("axis").ok()?.unwrap_or(match self.model.opset() {
                        ..20 => 1,
                        _ => -2,
                    }),
                };
                let last = rank.checked_sub(1)?;
                let (sets, mixed) = first?.over(&[wrap(named, rank)?, last]);
                Some(Step::mixed(sets, mixed.then_some(Mixing::Other)))
            }
            ("", "MatMul" | "MatMulInteger")
            | (
                "com.microsoft",
                "FusedMatMul"
                | "MatMulIntegerToFloat"
                | "DynamicQuantizeMatMul"
                | "MatMulNBits"
                | "MatMulBnb4",
            ) => self.product(id, [0, 1], inputs),
            ("" | "com.microsoft", "QLinearMatMul") => self.product(id, [0, 3], inputs),
            ("", "Gemm") | ("com.microsoft", "FusedGemm") => self.product(id, [0, 1], inputs),
            ("com.microsoft", "QGemm") => self.product(id, [0, 3], inputs),
            ("", "Einsum") => self.einsum(id, inputs),
            (
                "" | "com.microsoft" | "com.microsoft.nchwc",
                "Conv" | "ConvTranspose" | "ConvInteger" | "QLinearConv" | "FusedConv"
                | "AveragePool" | "MaxPool" | "LpPool" | "Resize" | "Upsample" | "DeformConv",
            ) => self.windowed(id, first?, 1),
            ("com.microsoft", "NhwcConv" | "NhwcFusedConv") => {
                self.windowed(id, first?, first?.rank() - 1)
            }
            ("", "LSTM" | "GRU" | "RNN") | ("com.microsoft", "DynamicQuantizeLSTM") => {
                let (sets, _) = first?.over(&[2]);
                let mixing = (!sets.is_uniform(0)).then_some(Mixing::Recurrence);
                Some(Step::mixed(sets.with_axis(1), mixing))
            }
            ("", "DynamicQuantizeLinear") => Some(Step::plain(first?.clone())),
            _ if is_rotary(node) => {
                let rank = first?.rank();
                let (sets, mixed) = first?.over(&[rank.checked_sub(1)?]);
                Some(Step::mixed(sets, mixed.then_some(Mixing::Other)))
            }
            ("com.microsoft", "GatherBlockQuantized") => self.gathered(id, inputs),
            ("com.microsoft.nchwc", "ReorderInput" | "ReorderOutput")
                if node.int("channels_last") != Ok(Some(1)) =>
            {
                Some(Step::plain(first?.clone()))
            }
            ("com.microsoft", "MoE" | "QMoE") => {
                let (sets, _) = first?.over(&[first?.rank().checked_sub(1)?]);
                Some(Step::plain(sets))
            }
            ("", _) => self.moved(id, inputs),
            _ => None,
        }
    }

    /// Attention that was recognized: what it gives belongs to the token of the query.
    fn fused(&self, id: NodeId, query: &Sets) -> Option<Step> {
        let out = self.dims(self.model.graph().node(id).output(0))?.len();
        let (mut sets, _) = query.over(&[query.rank().checked_sub(1)?]);
        if out != sets.rank() {
            // `[b, s, heads, 3, d]` packs queries, keys and values.
            sets = sets.over(&(2..sets.rank()).collect::<Vec<_>>()).0;
            sets = sets.without(&(out..sets.rank()).collect::<Vec<_>>());
        }
        (sets.rank() == out).then(|| Step::plain(sets))
    }

    /// An attribute or, where axes are known, the axis of an operator.
    fn axis(&self, node: &Node, default: i64) -> Option<usize> {
        let axis = node.int("axis").ok()?.unwrap_or(default);
        wrap(axis, self.dims(node.input(0))?.len())
    }

    /// The attribute `axis` of an operator on a sequence of values of this rank.
    fn axis_of(&self, node: &Node, rank: usize) -> Option<usize> {
        wrap(node.int("axis").ok()?.unwrap_or(0), rank)
    }

    /// Each element of the result depends on statistics over some axes, and on its own place.
    fn normalized(&self, id: NodeId, inputs: &[Option<&Sets>]) -> Option<Step> {
        let node = self.model.graph().node(id);
        let terms = if is_skip_norm(node) { 2 } else { 1 };
        let own = elementwise(inputs.iter().take(terms).copied().flatten())?;
        let (sets, mut mixing) = (own.outputs.into_iter().next()??, own.mixing);
        let rank = sets.rank();
        let axes: Vec<usize> = match node.op() {
            "BatchNormalization" => vec![],
            "InstanceNormalization" => (2..rank).collect(),
            "GroupNormalization" | "GroupNorm" | "SkipGroupNorm" => (1..rank).collect(),
            "LRN" => vec![1],
            "MeanVarianceNormalization" => match node.ints("axes").ok()? {
                Some(axes) => axes.iter().map(|a| wrap(*a, rank)).collect::<Option<_>>()?,
                None => vec![0, 2, 3],
            },
            "Softmax" | "LogSoftmax" | "Hardmax" => {
                let old = self.model.opset() < 13;
                let axis = self.axis(node, if old { 1 } else { -1 })?;
                if old {
                    (axis..rank).collect()
                } else {
                    vec![axis]
                }
            }
            "LpNormalization" => vec![self.axis(node, -1)?],
            _ => (self.axis(node, -1)?..rank).collect(),
        };
        let (_, mixed) = sets.over(&axes);
        if mixed {
            mixing = mixing.or(Some(Mixing::Pooling));
        }
        // What statistics over tokens contribute belongs to none of them.
        let sets = if mixed { sets } else { sets.over(&axes).0 };
        Some(Step::mixed(sets, mixing))
    }

    fn reduced(&self, id: NodeId, sets: &Sets) -> Option<Step> {
        let node = self.model.graph().node(id);
        let rank = sets.rank();
        let numbers = |v| Some(self.trace.get(v).to_i64()?.iter().copied().collect());
        let axes = reduction::axes(node, rank, numbers)?;
        let (sets, mixed) = sets.over(&axes);
        let keeps = node.int("keepdims").ok()?.unwrap_or(1) != 0;
        let sets = if keeps { sets } else { sets.without(&axes) };
        Some(pooled((sets, mixed)))
    }
}

/// Elements at equal places.
fn elementwise<'a>(inputs: impl Iterator<Item = &'a Sets>) -> Option<Step> {
    let mut result: Option<Sets> = None;
    let mut mixing = None;
    for sets in inputs {
        result = Some(match result {
            None => sets.clone(),
            Some(before) => {
                let (both, mixed) = before.union(sets)?;
                if mixed {
                    mixing = Some(Mixing::Other);
                }
                both
            }
        });
    }
    Some(Step::mixed(result?, mixing))
}

/// A statistic: over several tokens, it belongs to none of them.
fn pooled((sets, mixed): (Sets, bool)) -> Step {
    if mixed {
        return Step::selection();
    }
    Step::plain(sets)
}

#[cfg(test)]
mod tests {
    use super::ELEMENTWISE;

    #[test]
    fn elementwise_operators_are_sorted_for_the_search() {
        assert!(ELEMENTWISE.is_sorted());
    }
}
