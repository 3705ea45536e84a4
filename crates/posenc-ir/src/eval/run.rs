//! Running the nodes of scopes.

use std::cell::Cell;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::apply::apply;
use super::memo::{Key, Memo};
use super::memory::{Memory, State};
use super::{Budget, Data, Value, einsum, sequence};
use crate::graph::{Dim, Graph, Type};
use crate::id::{NodeId, ScopeId, ValueId};
use crate::model::Model;
use crate::node::Node;

/// Values that depend on constants only are computed at once up to this many elements; larger ones
/// when they are needed, so that weights are not read.
const EAGER: usize = 1 << 14;

/// The most elements of all tensors of a run, as a multiple of those of one.
const TOTAL: usize = 3;

/// The most elements that a run computes, as a multiple of those of one tensor.
const COMPUTED: usize = 32;

/// The number of multiplications that cost as much as an element.
const MULTIPLICATIONS: usize = 8;

/// Tensors up to this many elements (shapes and the like) are always computed.
const SMALL: usize = 64;

/// A run over a model.
pub(super) struct Run<'a, M> {
    pub(super) graph: &'a Graph,
    pub(super) memory: M,
    seeds: &'a FxHashMap<ValueId, Value>,
    opaque: &'a dyn Fn(ValueId) -> bool,
    opsets: BTreeMap<String, i64>,
    standard: i64,
    pub(super) budget: Budget,
    /// Bytes that may still be used.
    left: usize,
    /// Elements that may still be computed, also those that are not kept.
    work: Cell<usize>,
    /// What was computed of large inputs, where values are kept.
    pub(super) memo: Option<Memo>,
    /// Bytes of deferred values that the memo may still keep.
    memo_left: usize,
}

impl<'a, M: Memory> Run<'a, M> {
    pub(super) fn new(
        model: &'a Model,
        seeds: &'a FxHashMap<ValueId, Value>,
        opaque: &'a dyn Fn(ValueId) -> bool,
        budget: &Budget,
        memory: M,
    ) -> Self {
        Self {
            graph: model.graph(),
            memory,
            seeds,
            opaque,
            opsets: model.opsets(),
            standard: model.opset(),
            budget: *budget,
            left: budget.elements.saturating_mul(8 * TOTAL),
            work: Cell::new(budget.elements.saturating_mul(COMPUTED)),
            memo: None,
            memo_left: budget.elements.saturating_mul(8 * TOTAL),
        }
    }

    /// Runs a scope: its inputs (unless they are known already), initializers and nodes.
    pub(super) fn scope(&mut self, id: ScopeId) {
        let graph = self.graph;
        let scope = graph.scope(id);
        for &input in scope.inputs() {
            if self.memory.get(input).dtype.is_none() {
                let declared = self.declared(input);
                self.put(input, declared, State::Live);
            }
        }
        for &value in scope.inputs().iter().chain(scope.initializers()) {
            if graph.stored(value).is_some() {
                let constant = self.constant(value);
                self.put(value, constant, State::Frozen);
            }
        }
        // No nodes where they depend on each other in a cycle.
        for node in graph.order(id).unwrap_or_default() {
            self.node(node);
        }
    }

    /// Records a value, or the seed of this value.
    pub(super) fn put(&mut self, id: ValueId, value: Value, state: State) {
        let new = bytes(&value);
        self.put_shared(id, value, state);
        let kept = self.memory.get(id).data.is_some() && !self.seeds.contains_key(&id);
        self.left = self.left.saturating_sub(if kept { new } else { 0 });
    }

    /// Records a value whose elements another value has already, or the seed of this value.
    fn put_shared(&mut self, id: ValueId, mut value: Value, state: State) {
        if let Some(seed) = self.seeds.get(&id) {
            return self.memory.set(id, seed.clone(), State::Live);
        }
        if value.data.is_some() && (self.opaque)(id) {
            value.data = None;
        }
        self.memory.set(id, value, state);
    }

    /// Forgets the elements of a value that is read no more.
    pub(super) fn forget(&mut self, id: ValueId) {
        let value = self.memory.get(id);
        let (freed, shape) = (bytes(value), Value::shaped(value.dtype, value.dims.clone()));
        let state = self.memory.state(id);
        self.memory.set(id, shape, state);
        let kept = !self.seeds.contains_key(&id);
        self.left = self.left.saturating_add(if kept { freed } else { 0 });
    }

    /// Runs one node and records its outputs.
    pub(super) fn node(&mut self, id: NodeId) {
        let graph = self.graph;
        let node = graph.node(id);
        if node.bodies().next().is_some() {
            super::control::run(self, id);
        } else {
            self.plain(node);
        }
        self.memory.done(id);
    }

    fn plain(&mut self, node: &Node) {
        if let [Some(out)] = node.outputs()
            && self.graph.stored(*out).is_some()
        {
            let constant = self.constant(*out);
            return self.put(*out, constant, State::Frozen);
        }
        let given = || node.inputs().iter().flatten();
        let frozen = given().all(|v| self.memory.state(*v) != State::Live);
        let waits = given().any(|v| self.memory.state(*v) == State::Deferred);
        let kept = if waits && !frozen {
            self.compute_deferred(node)
        } else {
            FxHashMap::default()
        };
        let state = |value: &Value| match (frozen, &value.data) {
            (false, _) => State::Live,
            (true, Some(_)) => State::Frozen,
            (true, None) => State::Deferred,
        };
        let key = self.memo.as_ref().and_then(|_| {
            let get = |v: ValueId| kept.get(&v).unwrap_or_else(|| self.memory.get(v));
            Key::of(node, node.inputs().iter().map(|v| v.map(get)))
        });
        let known = key.as_ref().zip(self.memo.as_ref());
        if let Some(outputs) = known.and_then(|(key, memo)| memo.get(key)) {
            for (out, value) in node.outputs().iter().zip(outputs) {
                if let Some(out) = *out {
                    self.put_shared(out, value.clone(), state(&value));
                }
            }
            return;
        }
        let in_use = kept.values().map(bytes).sum();
        let budget = self.now(if frozen { EAGER } else { usize::MAX }, in_use);
        let outputs = self.evaluate(node, &budget, &kept);
        for (out, mut value) in node.outputs().iter().zip(outputs) {
            let Some(out) = *out else {
                continue;
            };
            if value.dtype.is_none() || value.dims.is_none() {
                let declared = self.declared(out);
                value.dtype = value.dtype.or(declared.dtype);
                value.dims = value.dims.or(declared.dims);
            }
            let state = state(&value);
            self.put(out, value, state);
        }
        let seeded = |v: &Option<ValueId>| v.is_some_and(|v| self.seeds.contains_key(&v));
        let key = key.filter(|_| !node.outputs().iter().any(seeded));
        if let (Some(key), Some(memo)) = (key, &mut self.memo) {
            let outputs = node.outputs().iter().map(|v| Some(self.memory.get((*v)?)));
            memo.insert(key, outputs);
        }
    }

    /// The budget of the next node, with `in_use` bytes allocated outside of the memory.
    fn now(&self, most: usize, in_use: usize) -> Budget {
        let left = self.left.saturating_sub(in_use) / 8;
        let elements = left.min(self.work.get()).max(SMALL);
        Budget {
            elements: elements.min(self.budget.elements).min(most),
        }
    }

    /// The outputs of a node without bodies; values in `known` are preferred to the memory.
    fn evaluate(
        &self,
        node: &Node,
        budget: &Budget,
        known: &FxHashMap<ValueId, Value>,
    ) -> Vec<Value> {
        let get = |v: ValueId| known.get(&v).unwrap_or_else(|| self.memory.get(v));
        let inputs: Vec<Option<&Value>> = node.inputs().iter().map(|v| v.map(get)).collect();
        let opset = match node.domain() {
            "" => self.standard,
            domain => self.opsets.get(domain).copied().unwrap_or(1),
        };
        let result = if node.is("SequenceAt") || node.is("SequenceLength") {
            let maker = node.input(0).and_then(|v| self.graph.producer(v));
            match maker.map(|(id, _)| self.graph.node(id)) {
                Some(maker) => {
                    let parts: Vec<Option<&Value>> =
                        maker.inputs().iter().map(|v| v.map(get)).collect();
                    sequence::read(node, &inputs, maker, &parts, budget)
                }
                None => Ok(Vec::new()),
            }
        } else {
            apply(node, opset, &inputs, budget)
        };
        let mut outputs = result.unwrap_or_default();
        outputs.resize_with(node.outputs().len(), Value::unknown);
        let spent = outputs.iter().map(|v| cost(node, &inputs, v));
        let spent = spent.fold(0, usize::saturating_add);
        self.work.set(self.work.get().saturating_sub(spent));
        outputs
    }

    /// Computes the deferred inputs of a node, unless they are weights. Those that meet unknown
    /// content are kept in memory; the others are returned and dropped after the node.
    fn compute_deferred(&mut self, node: &Node) -> FxHashMap<ValueId, Value> {
        let mut known = FxHashMap::default();
        let inputs: Vec<ValueId> = node.inputs().iter().flatten().copied().collect();
        let (waiting, live): (Vec<_>, Vec<_>) = inputs
            .into_iter()
            .partition(|v| self.memory.state(*v) == State::Deferred);
        let content = live.iter().any(|v| self.memory.get(*v).data.is_none());
        if content && takes_weights(node) {
            return known;
        }
        for value in waiting {
            self.force(value, &mut known);
            if content && let Some(found) = known.get(&value) {
                let found = found.clone();
                if self.memo.as_mut().is_some_and(|memo| memo.is_kept(&found)) {
                    self.put_shared(value, found, State::Frozen);
                } else {
                    self.put(value, found, State::Frozen);
                }
            }
        }
        known
    }

    /// Computes a deferred value and the deferred values that it needs, into `known`.
    pub(super) fn force(&mut self, value: ValueId, known: &mut FxHashMap<ValueId, Value>) {
        let (order, mut readers) = self.needed(value, known);
        let mut in_use: usize = known.values().map(bytes).sum();
        for id in order {
            let node = self.graph.node(id);
            // Control flow is not run again.
            let outputs = if node.bodies().next().is_some() {
                Vec::new()
            } else {
                self.recall(node, in_use, known)
            };
            let outputs = outputs.into_iter().map(Some).chain(std::iter::repeat(None));
            for (out, found) in node.outputs().iter().zip(outputs) {
                if let Some(out) = out {
                    let found = found.unwrap_or_else(|| self.memory.get(*out).clone());
                    in_use = in_use.saturating_add(bytes(&found));
                    known.insert(*out, found);
                }
            }
            for input in node.inputs().iter().flatten() {
                let Some(left) = readers.get_mut(input) else {
                    continue;
                };
                *left -= 1;
                if *left == 0
                    && let Some(done) = known.remove(input)
                {
                    in_use = in_use.saturating_sub(bytes(&done));
                }
            }
        }
    }

    /// The outputs of a node of deferred values, which equal layers share.
    fn recall(
        &mut self,
        node: &Node,
        in_use: usize,
        known: &FxHashMap<ValueId, Value>,
    ) -> Vec<Value> {
        let get = |v: ValueId| known.get(&v).unwrap_or_else(|| self.memory.get(v));
        let key = self.memo.as_ref().and_then(|_| {
            let inputs = node.inputs().iter().map(|v| v.map(get));
            Key::of(node, inputs)
        });
        let found = key.as_ref().zip(self.memo.as_ref());
        if let Some(outputs) = found.and_then(|(key, memo)| memo.get(key)) {
            return outputs;
        }
        let outputs = self.evaluate(node, &self.now(usize::MAX, in_use), known);
        let size: usize = outputs.iter().map(bytes).sum();
        if let (Some(key), Some(memo)) = (key, &mut self.memo)
            && self.memo_left > 0
        {
            self.memo_left = self.memo_left.saturating_sub(size);
            let given = node.outputs().iter().zip(&outputs);
            memo.insert(key, given.map(|(v, value)| v.map(|_| value)));
        }
        outputs
    }

    /// The nodes that compute a deferred value, in topological order, and how often each of the
    /// values between them is read.
    fn needed(
        &self,
        value: ValueId,
        known: &FxHashMap<ValueId, Value>,
    ) -> (Vec<NodeId>, FxHashMap<ValueId, usize>) {
        let waits =
            |v: &ValueId| self.memory.state(*v) == State::Deferred && !known.contains_key(v);
        let mut order = Vec::new();
        let mut readers: FxHashMap<ValueId, usize> = FxHashMap::default();
        let mut done: FxHashMap<NodeId, bool> = FxHashMap::default();
        let maker = |v: ValueId| self.graph.producer(v).map(|(id, _)| id);
        let mut stack: Vec<NodeId> = maker(value).into_iter().collect();
        while let Some(&id) = stack.last() {
            if done.get(&id) == Some(&true) {
                stack.pop();
                continue;
            }
            let inputs = self.graph.node(id).inputs().iter().flatten();
            let inputs: Vec<ValueId> = inputs.copied().filter(waits).collect();
            if done.insert(id, false).is_none() {
                let makers = inputs.iter().filter_map(|v| maker(*v));
                stack.extend(makers.filter(|id| !done.contains_key(id)));
            } else {
                done.insert(id, true);
                stack.pop();
                order.push(id);
                for input in inputs {
                    *readers.entry(input).or_insert(0) += 1;
                }
            }
        }
        (order, readers)
    }

    /// The declared type and dimensions of a value.
    pub(super) fn declared(&self, id: ValueId) -> Value {
        let Some(Type::Tensor { dtype, shape }) = self.graph.value(id).ty() else {
            return Value::unknown();
        };
        let dims = shape.as_ref().and_then(|shape| {
            let dims = shape.iter().map(|d| match d {
                Dim::Known(n) => Some(*n),
                Dim::Symbol(_) | Dim::Unknown => None,
            });
            dims.collect()
        });
        Value::shaped(*dtype, dims)
    }

    /// The value of a constant.
    fn constant(&mut self, id: ValueId) -> Value {
        if let Some(tensor) = self.graph.constant(id) {
            return Value::from_tensor(&tensor);
        }
        let Some(stored) = self.graph.stored(id) else {
            return Value::unknown();
        };
        Value::shaped(stored.dtype, Some(stored.dims.clone()))
    }
}

/// Whether the operator combines content with weights, whose values are not needed here.
fn takes_weights(node: &Node) -> bool {
    !node.domain().is_empty()
        || matches!(
            node.op(),
            "MatMul"
                | "Gemm"
                | "Einsum"
                | "Gather"
                | "Conv"
                | "ConvTranspose"
                | "MatMulInteger"
                | "ConvInteger"
                | "QLinearMatMul"
                | "QLinearConv"
                | "LSTM"
                | "GRU"
                | "RNN"
        )
}

/// The cost of an output, in elements.
fn cost(node: &Node, inputs: &[Option<&Value>], output: &Value) -> usize {
    let elements = bytes(output) / 8;
    match node.op() {
        // The inner axis is one of the last two: assume the longer one.
        "MatMul" | "Gemm" | "MatMulInteger" if elements > 0 => {
            let first = inputs.first().copied().flatten();
            let last = first.and_then(|v| v.dims.as_ref()).map_or(1, |dims| {
                dims.iter().rev().take(2).copied().max().unwrap_or(1)
            });
            elements.saturating_mul(last) / MULTIPLICATIONS
        }
        "Conv" if elements > 0 => {
            let weight = inputs.get(1).copied().flatten();
            let taps = weight.and_then(|v| v.dims.as_ref()).map_or(1, |dims| {
                let each = dims.iter().skip(1);
                each.fold(1usize, |n, d| n.saturating_mul(*d))
            });
            elements.saturating_mul(taps) / MULTIPLICATIONS
        }
        "Einsum" if elements > 0 => {
            let all = einsum::multiplications(node, inputs);
            all.unwrap_or(usize::MAX) / MULTIPLICATIONS
        }
        _ => elements,
    }
}

/// The memory of a value, without mapped constants.
fn bytes(value: &Value) -> usize {
    match value.data.as_deref() {
        Some(Data::Float(a)) => a.len().saturating_mul(8),
        Some(Data::Int(a)) => a.len().saturating_mul(8),
        Some(Data::Bool(a)) => a.len(),
        Some(Data::Stored(_)) | None => 0,
    }
}
