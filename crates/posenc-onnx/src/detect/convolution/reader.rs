//! Whether attention reads a sum, or another layer does.

use std::collections::BTreeSet;

use posenc_ir::{Node, NodeId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::detect::runs::Runs;
use crate::graph::dataflow::Class;
use crate::graph::operators::is_product;

/// Nodes between a sum and queries or keys: norms and rotations in parts are some dozens.
const NEAR: usize = 256;

/// Walks back from the queries and keys of attention sites.
pub(super) struct Readers<'a> {
    runs: &'a Runs<'a>,
    /// Sums of an encoding and its input, with the slot of the input.
    sums: FxHashMap<NodeId, usize>,
}

impl<'a> Readers<'a> {
    pub(super) fn of(runs: &'a Runs<'a>) -> Self {
        Self {
            runs,
            sums: FxHashMap::default(),
        }
    }

    /// Walks pass this sum by the input in this slot only.
    pub(super) fn skip(&mut self, sum: NodeId, slot: usize) {
        self.sums.insert(sum, slot);
    }

    /// Whether nothing but norms and linear maps is between a sum and the queries or keys of one of
    /// these sites.
    ///
    /// # Errors
    /// What is between it and the nearest site.
    pub(super) fn attends(&self, sites: &BTreeSet<usize>, sum: NodeId) -> Result<(), NodeId> {
        let mut between = sum;
        let attention = &self.runs.found.attention;
        for site in sites.iter().rev().filter_map(|i| attention.get(*i)) {
            for value in [site.query.value, site.key.value] {
                match self.between(value, sum) {
                    Some(node) => between = node,
                    None => return Ok(()),
                }
            }
        }
        Err(between)
    }

    /// The first layer that is met on the way back from a value; `None` where every way ends at the
    /// sum, or where nothing depends on content.
    fn between(&self, value: ValueId, sum: NodeId) -> Option<NodeId> {
        let graph = self.runs.model.graph();
        let content = |v: &ValueId| self.runs.found.classes.of_value(*v).has(Class::CONTENT);
        let mut seen = FxHashSet::default();
        let mut stack = vec![value];
        let mut last = sum;
        let mut is_met = false;
        while let Some(value) = stack.pop() {
            let Some((id, _)) = graph.producer(value) else {
                continue;
            };
            is_met |= id == sum;
            if id == sum || !seen.insert(id) {
                continue;
            }
            let node = graph.node(id);
            last = id;
            let inputs = node.inputs().iter().flatten().copied();
            let read: Vec<ValueId> = match self.sums.get(&id) {
                Some(slot) => node.input(*slot).into_iter().collect(),
                None => inputs.filter(content).collect(),
            };
            if seen.len() > NEAR || is_layer(node, read.len()) {
                return Some(id);
            }
            stack.extend(read);
        }
        if !is_met {
            return Some(last);
        }
        self.joined_behind(&seen, sum)
    }

    /// The addition that joins a linear map of a sum to other content, as a layer is added to its input.
    fn joined_behind(&self, seen: &FxHashSet<NodeId>, sum: NodeId) -> Option<NodeId> {
        let graph = self.runs.model.graph();
        let producer = |value: &ValueId| graph.producer(*value).map(|(id, _)| id);
        let content = |v: &&ValueId| self.runs.found.classes.of_value(**v).has(Class::CONTENT);
        let after = |from: NodeId, stops: &dyn Fn(NodeId) -> bool| {
            let mut reached = FxHashSet::from_iter([from]);
            let mut stack = vec![from];
            while let Some(id) = stack.pop() {
                let outputs = graph.node(id).outputs().iter().flatten();
                for at in outputs.flat_map(|v| graph.uses(*v)) {
                    let is_new = seen.contains(&at.node) && !stops(at.node);
                    if is_new && reached.insert(at.node) {
                        stack.push(at.node);
                    }
                }
            }
            reached
        };
        let is_map = |id: NodeId| is_product(graph.node(id));
        let all = after(sum, &|_| false);
        let unmapped = after(sum, &is_map);
        let joins = |id: &&NodeId| {
            let node = graph.node(**id);
            let inputs = node.inputs().iter().flatten().filter(content);
            let (own, others): (Vec<_>, Vec<_>) = inputs
                .map(producer)
                .partition(|made| made.is_some_and(|id| all.contains(&id)));
            let mapped = own.iter().flatten().all(|id| !unmapped.contains(id));
            node.is("Add") && !own.is_empty() && !others.is_empty() && mapped
        };
        seen.iter().filter(joins).min().copied()
    }
}

/// Activations, products of content with content, and operators over several tokens: none of them
/// belongs to a norm or a projection.
fn is_layer(node: &Node, contents: usize) -> bool {
    let op = node.op();
    let activates = matches!(
        op,
        "Relu"
            | "Sigmoid"
            | "Tanh"
            | "Erf"
            | "Exp"
            | "Gelu"
            | "Elu"
            | "Celu"
            | "Selu"
            | "PRelu"
            | "LeakyRelu"
            | "Softplus"
            | "Softsign"
            | "HardSwish"
            | "HardSigmoid"
            | "Mish"
            | "Swish"
            | "ThresholdedRelu"
            | "FastGelu"
            | "QuickGelu"
            | "BiasGelu"
            | "QLinearSigmoid"
            | "QLinearLeakyRelu"
            | "FusedConv"
            | "NhwcFusedConv"
            | "FusedGemm"
    );
    let mixes = matches!(
        op,
        "Softmax" | "LogSoftmax" | "LSTM" | "DynamicQuantizeLSTM" | "GRU" | "RNN" | "Loop" | "Scan"
    );
    activates || mixes || op.ends_with("Attention") || is_product(node) && contents > 1
}
