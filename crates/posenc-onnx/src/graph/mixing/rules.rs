//! What operators do to the tokens that their inputs depend on.

use ndarray::ArrayD;
use posenc_ir::eval::{Budget, Trace, Value, apply};
use posenc_ir::{Model, Node, NodeId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::sets::Sets;
use crate::graph::dataflow::Classes;
use crate::graph::einsum::Equation;
use crate::graph::lane::wrap;
use crate::graph::operators::{is_norm, is_reshape, is_skip_norm};

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

/// The axis along which a `Scan` slices an input.
pub(super) fn scan_axis(node: &Node, index: usize, rank: usize) -> usize {
    let axes = node.ints("scan_input_axes").ok().flatten();
    let axis = axes.and_then(|axes| axes.get(index).copied()).unwrap_or(0);
    wrap(axis, rank).unwrap_or(0)
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

/// Operators that compute each element from those at its place, after broadcasting.
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

/// Elements of a value whose sets are moved one by one.
const MOST: usize = 1 << 22;

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
    pub(super) fn unknown(&self, id: NodeId, inputs: &[Option<Sets>]) -> Step {
        let node = self.model.graph().node(id);
        let parts = || inputs.iter().flatten();
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
    pub(super) fn step(&self, id: NodeId, inputs: &[Option<Sets>]) -> Option<Step> {
        let node = self.model.graph().node(id);
        let first = inputs.first().and_then(Option::as_ref);
        let op = node.op();
        if let Some(query) = self.known.fused.get(&id) {
            return self.fused(id, inputs.get(*query)?.as_ref()?);
        }
        if ELEMENTWISE.contains(&op) && ["", "com.microsoft"].contains(&node.domain()) {
            return elementwise(inputs.iter().flatten());
        }
        if op == "EmbedLayerNormalization" {
            let sets = elementwise(inputs.iter().take(2).flatten())?
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
            ("", "GlobalAveragePool" | "GlobalMaxPool" | "GlobalLpPool") => {
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
                "" | "com.microsoft",
                "Conv" | "ConvTranspose" | "ConvInteger" | "QLinearConv" | "FusedConv"
                | "AveragePool" | "MaxPool" | "LpPool" | "Resize" | "Upsample" | "DeformConv",
            ) => self.windowed(id, first?, 1),
            ("com.microsoft", "NhwcConv" | "NhwcFusedConv") => {
                self.windowed(id, first?, first?.rank() - 1)
            }
            ("", "LSTM" | "GRU" | "RNN") => {
                let (sets, _) = first?.over(&[2]);
                let mixing = (!sets.is_uniform(0)).then_some(Mixing::Recurrence);
                Some(Step::mixed(sets.with_axis(1), mixing))
            }
            ("", "DynamicQuantizeLinear") => Some(Step::plain(first?.clone())),
            ("" | "com.microsoft", "RotaryEmbedding") => {
                let rank = first?.rank();
                let (sets, mixed) = first?.over(&[rank.checked_sub(1)?]);
                Some(Step::mixed(sets, mixed.then_some(Mixing::Other)))
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
    fn normalized(&self, id: NodeId, inputs: &[Option<Sets>]) -> Option<Step> {
        let node = self.model.graph().node(id);
        let terms = if is_skip_norm(node) { 2 } else { 1 };
        let own = elementwise(inputs.iter().take(terms).flatten())?;
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
        let axes: Vec<usize> = if node.op().starts_with("Arg") {
            vec![self.axis(node, 0)?]
        } else {
            let given: Option<Vec<i64>> = match node.input(1) {
                Some(v) => Some(self.trace.get(v).to_i64()?.iter().copied().collect()),
                None => node.ints("axes").ok()?.map(<[i64]>::to_vec),
            };
            let no_op = node.int("noop_with_empty_axes").ok()?.unwrap_or(0) != 0;
            match given.filter(|axes| !axes.is_empty()) {
                Some(axes) => axes.iter().map(|a| wrap(*a, rank)).collect::<Option<_>>()?,
                None if no_op => vec![],
                None => (0..rank).collect(),
            }
        };
        let (sets, mixed) = sets.over(&axes);
        let keeps = node.int("keepdims").ok()?.unwrap_or(1) != 0;
        let sets = if keeps { sets } else { sets.without(&axes) };
        Some(pooled((sets, mixed)))
    }

    /// A product of two matrices, the operands being the inputs at `slots`.
    fn product(&self, id: NodeId, slots: [usize; 2], inputs: &[Option<Sets>]) -> Option<Step> {
        let node = self.model.graph().node(id);
        let flag = |name: &str| matches!(node.int(name), Ok(Some(n)) if n != 0);
        let [a, b] = slots.map(|slot| inputs.get(slot).and_then(Option::as_ref));
        let out = self.dims(node.output(0))?.len();
        let rank = |slot: usize| self.dims(node.input(slot)).map(<[usize]>::len);
        if flag("transBatchA") || flag("transBatchB") {
            return None;
        }
        let mut mixing = None;
        let mut side = |sets: &Sets, other: Option<ValueId>, transposed: bool, left: bool| {
            let last = sets.rank().checked_sub(1)?;
            let swapped = match last.checked_sub(1) {
                Some(before) if transposed => {
                    let mut order: Vec<usize> = (0..=last).collect();
                    order.swap(before, last);
                    sets.transposed(&order)?
                }
                _ => sets.clone(),
            };
            let contracted = if left || last == 0 { last } else { last - 1 };
            let (united, mixed) = swapped.over(&[contracted]);
            if mixed {
                mixing = self.contraction(other, &united).or(mixing);
            }
            // A vector has no axis of its own in the result.
            Some(if last == 0 {
                united.without(&[0])
            } else {
                united
            })
        };
        let left = match a {
            Some(sets) => Some(side(sets, node.input(slots[1]), flag("transA"), true)?),
            None => None,
        };
        let right = match b {
            Some(sets) => Some(side(sets, node.input(slots[0]), flag("transB"), false)?),
            None => None,
        };
        let vectors = (rank(slots[0])? == 1, rank(slots[1]).unwrap_or(2) == 1);
        let mut sets = match (left, right) {
            (Some(a), Some(b)) => {
                let (both, mixed) = a.union(&b)?;
                if mixed {
                    mixing = Some(Mixing::Other);
                }
                both
            }
            (a, b) => a.or(b)?,
        };
        if let (false, true) = vectors {
            let last = sets.rank().checked_sub(1)?;
            sets = sets.without(&[last]);
        }
        while sets.rank() < out {
            sets = sets.with_axis(0);
        }
        (sets.rank() == out).then(|| Step::mixed(sets, mixing))
    }

    /// How a contraction over tokens with another operand mixes them.
    fn contraction(&self, other: Option<ValueId>, united: &Sets) -> Option<Mixing> {
        let constant = other.is_some_and(|v| self.classes.of_value(v).is_constant());
        let local = united.varies();
        Some(if constant && local {
            Mixing::Convolution
        } else {
            Mixing::Other
        })
    }

    fn einsum(&self, id: NodeId, inputs: &[Option<Sets>]) -> Option<Step> {
        let node = self.model.graph().node(id);
        let equation = Equation::of(self.model.graph(), self.trace, id)?;
        let mut mixing = None;
        let mut result: Option<Sets> = None;
        for (slot, (sets, letters)) in inputs.iter().zip(&equation.operands).enumerate() {
            let Some(sets) = sets.as_ref().filter(|sets| sets.rank() == letters.len()) else {
                if sets.is_some() {
                    return None;
                }
                continue;
            };
            let gone: Vec<usize> = (0..letters.len())
                .filter(|axis| !equation.result.contains(&letters[*axis]))
                .collect();
            let (united, mixed) = sets.over(&gone);
            if mixed {
                let other = (0..inputs.len()).find(|other| *other != slot);
                let other = other.and_then(|other| node.input(other));
                mixing = self.contraction(other, &united).or(mixing);
            }
            let left: Vec<char> = (letters.iter().copied())
                .filter(|c| equation.result.contains(c))
                .collect();
            let mut placed = united.without(&gone);
            // In the order of the result, with axes for the letters of other operands.
            let mut order: Vec<usize> = (0..left.len()).collect();
            order.sort_by_key(|i| equation.result.iter().position(|c| *c == left[*i]));
            placed = placed.transposed(&order)?;
            for (axis, letter) in equation.result.iter().enumerate() {
                if !left.contains(letter) {
                    placed = placed.with_axis(axis);
                }
            }
            result = Some(match result {
                None => placed,
                Some(before) => {
                    let (both, mixed) = before.union(&placed)?;
                    if mixed {
                        mixing = Some(Mixing::Other);
                    }
                    both
                }
            });
        }
        Some(Step::mixed(result?, mixing))
    }

    /// A window over the axes that are neither the first nor `channels`.
    fn windowed(&self, id: NodeId, sets: &Sets, channels: usize) -> Option<Step> {
        let node = self.model.graph().node(id);
        let dims = self.dims(node.output(0))?;
        let (united, _) = sets.over(&[channels]);
        let spatial: Vec<usize> = (1..sets.rank()).filter(|axis| *axis != channels).collect();
        if spatial.iter().all(|axis| united.is_uniform(*axis)) {
            return (sets.rank() == dims.len()).then(|| Step::plain(united));
        }
        if self.dims(node.input(0)).is_some_and(|before| {
            let alike = |axis: &usize| before.get(*axis) == dims.get(*axis);
            spatial.iter().all(alike)
        }) {
            let one = |name: &str| {
                let sizes = node.ints(name).ok().flatten();
                sizes.is_some_and(|sizes| sizes.iter().all(|n| *n == 1))
            };
            let mixing = (!one("kernel_shape")).then_some(Mixing::Convolution);
            return Some(Step::mixed(united, mixing));
        }
        let sets = Sets::numbered(dims, &spatial, false);
        Some(Step::mixed(sets, Some(Mixing::Convolution)))
    }

    /// Operators that move elements.
    fn moved(&self, id: NodeId, inputs: &[Option<Sets>]) -> Option<Step> {
        let node = self.model.graph().node(id);
        let first = inputs.first().and_then(Option::as_ref);
        let from = || self.dims(node.input(0));
        let out = self.dims(node.output(0)).unwrap_or_default();
        match node.op() {
            op if is_reshape(op) => Some(Step::plain(first?.reshaped(from()?, out)?)),
            "Transpose" => {
                let rank = first?.rank();
                let order: Vec<usize> = match node.ints("perm").ok()? {
                    Some(perm) => perm.iter().map(|a| wrap(*a, rank)).collect::<Option<_>>()?,
                    None => (0..rank).rev().collect(),
                };
                Some(Step::plain(first?.transposed(&order)?))
            }
            "Expand" => {
                let mut sets = first?.clone();
                while sets.rank() < out.len() {
                    sets = sets.with_axis(0);
                }
                Some(Step::plain(sets))
            }
            "Gather" => self.gathered(id, inputs),
            "Slice" | "Split" | "Concat" | "Pad" | "Tile" => {
                let all_outputs = || {
                    let sets = (0..node.outputs().len()).map(|_| first.cloned());
                    sets.collect::<Vec<_>>()
                };
                let changed = |axis: &usize| from().and_then(|d| d.get(*axis)) != out.get(*axis);
                let along: Vec<usize> = match node.op() {
                    "Slice" => self.sliced(node)?,
                    _ => (0..out.len()).filter(changed).collect(),
                };
                let alike = inputs.iter().all(|sets| sets.as_ref() == first);
                let is_uniform = |sets: &Sets| along.iter().all(|axis| sets.is_uniform(*axis));
                let short = first.filter(|sets| sets.rank() == out.len() && is_uniform(sets));
                match node.op() {
                    "Concat" if !alike => self.by_element(id, inputs),
                    _ if short.is_some() => Some(Step {
                        outputs: all_outputs(),
                        mixing: None,
                    }),
                    _ => self.by_element(id, inputs),
                }
            }
            "GatherElements" | "GatherND" | "ScatterND" | "ScatterElements" | "DepthToSpace"
            | "SpaceToDepth" | "ReverseSequence" | "Scatter" => self.by_element(id, inputs),
            // A sequence is a value that depends on what its parts do.
            "SplitToSequence" | "SequenceConstruct" | "ConcatFromSequence" | "SequenceAt" => {
                let along = match node.op() {
                    "SequenceAt" | "SequenceConstruct" => None,
                    _ => Some(self.axis_of(node, first?.rank())?),
                };
                let alike = inputs.iter().flatten().all(|sets| Some(sets) == first);
                let is_uniform = along.is_none_or(|axis| first.is_some_and(|s| s.is_uniform(axis)));
                (alike && is_uniform)
                    .then(|| Step::plain(first.cloned().unwrap_or_else(|| Sets::uniform(0, 0))))
            }
            "OneHot" => {
                let sets = first?.clone();
                let axis = node.int("axis").ok()?.unwrap_or(-1);
                let axis = wrap(axis, out.len())?;
                Some(Step::plain(sets.with_axis(axis)))
            }
            _ => None,
        }
    }

    /// The axes that a `Slice` cuts.
    fn sliced(&self, node: &Node) -> Option<Vec<usize>> {
        let rank = self.dims(node.input(0))?.len();
        let given: Option<Vec<i64>> = match node.input(3) {
            Some(axes) => Some(self.trace.get(axes).to_i64()?.iter().copied().collect()),
            None => node.ints("axes").ok()?.map(<[i64]>::to_vec),
        };
        match given {
            Some(axes) => axes.iter().map(|axis| wrap(*axis, rank)).collect(),
            None => Some((0..rank).collect()),
        }
    }

    fn gathered(&self, id: NodeId, inputs: &[Option<Sets>]) -> Option<Step> {
        let node = self.model.graph().node(id);
        let out = self.dims(node.output(0))?;
        let rank = self.dims(node.input(0))?.len();
        let picked = self.dims(node.input(1))?.len();
        let axis = self.axis(node, 0)?;
        let [data, indices] = [0, 1].map(|slot| inputs.get(slot).and_then(Option::as_ref));
        let mut mixing = None;
        let mut parts: Vec<Sets> = vec![];
        if let Some(indices) = indices {
            let mut sets = indices.clone();
            for _ in 0..axis {
                sets = sets.with_axis(0);
            }
            for _ in axis + 1..rank {
                let last = sets.rank();
                sets = sets.with_axis(last);
            }
            parts.push(sets);
        }
        if let Some(data) = data {
            if !data.is_uniform(axis) && indices.is_none() {
                return self.by_element(id, inputs);
            }
            // Which token is read depends on content.
            let (united, mixed) = data.over(&[axis]);
            if mixed {
                mixing = Some(Mixing::Pooling);
            }
            let mut sets = united.without(&[axis]);
            for _ in 0..picked {
                sets = sets.with_axis(axis);
            }
            parts.push(sets);
        }
        let mut sets = parts.pop()?;
        if let Some(other) = parts.pop() {
            let (both, mixed) = sets.union(&other)?;
            if mixed && mixing.is_none() {
                mixing = Some(Mixing::Other);
            }
            sets = both;
        }
        if mixing == Some(Mixing::Pooling) {
            return Some(Step {
                outputs: vec![],
                mixing,
            });
        }
        (sets.rank() == out.len()).then(|| Step::mixed(sets, mixing))
    }

    /// Moves the sets as the operator moves elements.
    fn by_element(&self, id: NodeId, inputs: &[Option<Sets>]) -> Option<Step> {
        let node = self.model.graph().node(id);
        let value = |slot: usize| -> Option<Option<Value>> {
            let Some(input) = node.input(slot) else {
                return Some(None);
            };
            let dims = self.dims(Some(input));
            Some(Some(match inputs.get(slot).and_then(Option::as_ref) {
                Some(sets) => {
                    let dims = dims.filter(|d| d.iter().product::<usize>() <= MOST)?;
                    Value::int(sets.to_numbers(dims)?)
                }
                None if self.is_moved(node, slot) => {
                    let dims = dims.filter(|d| d.iter().product::<usize>() <= MOST)?;
                    Value::int(ArrayD::zeros(dims))
                }
                None => self.trace.get(input).clone(),
            }))
        };
        let values: Vec<Option<Value>> =
            (0..node.inputs().len()).map(value).collect::<Option<_>>()?;
        let values: Vec<Option<&Value>> = values.iter().map(Option::as_ref).collect();
        let outputs = apply(node, self.model.opset(), &values, &BUDGET).ok()?;
        let sets = |value: &Value| Some(Sets::of_numbers(&value.to_i64()?));
        let outputs: Option<Vec<Sets>> = outputs.iter().map(sets).collect();
        Some(Step {
            outputs: outputs?.into_iter().map(Some).collect(),
            mixing: None,
        })
    }

    /// Whether an input of an operator that moves elements is one whose elements move.
    fn is_moved(&self, node: &Node, slot: usize) -> bool {
        match node.op() {
            "Concat" => true,
            "Pad" => slot == 0 || slot == 2,
            "ScatterND" | "ScatterElements" | "Scatter" => slot != 1,
            _ => slot == 0,
        }
    }
}

/// Room for the elements of the operators that move them.
const BUDGET: Budget = Budget { elements: MOST };

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
        return Step {
            outputs: vec![],
            mixing: Some(Mixing::Pooling),
        };
    }
    Step::plain(sets)
}
