//! Regions: where position acts on queries or keys, between a projection and the product.

use std::collections::BTreeSet;

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, NodeId, Use, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::graph::dataflow::{Class, Classes};
use crate::graph::lane::{Lane, back};
use crate::graph::operators::{is_copy, is_layout, is_rearrangement};

/// Changes of shape around a rotation are few.
const STEPS: usize = 8;

/// The part of a path in which position acts, from one content value to another.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    /// The content that enters: the nearest value that everything in the region depends on.
    pub input: ValueId,
    /// Its lane.
    pub input_lane: Lane,
    /// The nearest value that everything in the region flows into.
    pub output: ValueId,
    /// Its lane.
    pub output_lane: Lane,
    /// Where position enters: uses of values that carry no content.
    pub entries: Vec<Use>,
    /// The inputs of a fused operator that rotates its operand itself.
    pub inside: Option<Inside>,
}

/// The rotation within a fused operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inside {
    /// Rows of cos by position, `[pos, pair]`.
    pub cos: ValueId,
    /// Rows of sin.
    pub sin: ValueId,
    /// Pairs are neighbors rather than halves apart.
    pub interleaved: bool,
    /// Features of a head.
    pub width: usize,
    /// The row of the first token of the trial run.
    pub first: usize,
    /// Tokens of the trial run.
    pub length: usize,
    /// The input that contains the last position of each sequence.
    pub positions: Option<ValueId>,
}

/// What two equal regions share of a value that they read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aspect {
    /// How it is computed.
    Origin,
    /// Its numbers in the trial run.
    Numbers,
    /// Its type and dimensions.
    Shape,
}

impl Region {
    /// The content on the paths from the input of the region to its output.
    pub(crate) fn content(&self, graph: &Graph, classes: &Classes) -> FxHashSet<ValueId> {
        let mut leads: FxHashMap<ValueId, bool> = FxHashMap::default();
        leads.insert(self.input, true);
        let mut stack = vec![(self.output, false)];
        while let Some((value, done)) = stack.pop() {
            let inputs: Vec<ValueId> = match graph.producer(value) {
                Some((id, _)) if !shape_only(graph, id) => reads(graph, id),
                _ => vec![],
            };
            if done {
                let any = inputs.iter().any(|v| leads.get(v) == Some(&true));
                leads.insert(value, any);
                continue;
            }
            if leads.contains_key(&value) || !classes.of_value(value).has(Class::CONTENT) {
                continue;
            }
            leads.insert(value, false);
            stack.push((value, true));
            stack.extend(inputs.into_iter().map(|v| (v, false)));
        }
        leads
            .into_iter()
            .filter(|(v, leads)| *leads && *v != self.input)
            .map(|(v, _)| v)
            .collect()
    }

    /// Every value that enters the region beside its content, where it is read: no constants, and no sizes where
    /// shapes are read.
    pub(crate) fn others<'a>(&self, graph: &'a Graph, classes: &'a Classes) -> Vec<(Use, ValueId)> {
        let on_path = self.content(graph, classes);
        let makers = on_path.iter().filter_map(|value| graph.producer(*value));
        let nodes: BTreeSet<NodeId> = makers.map(|(id, _)| id).collect();
        let mut others = vec![];
        for id in nodes {
            let node = graph.node(id);
            let moves = is_layout(node.op()) || matches!(node.op(), "Slice" | "Split" | "Gather");
            let of_bodies = reads(graph, id).into_iter().map(|v| (0, v));
            let inputs = node.inputs().iter().enumerate();
            let mut all: Vec<(usize, ValueId)> =
                inputs.filter_map(|(slot, v)| Some((slot, (*v)?))).collect();
            if node.bodies().next().is_some() {
                all.extend(of_bodies);
            }
            for (slot, value) in all {
                let class = classes.of_value(value);
                let is_size = slot > 0 && moves && class.is_length();
                if value != self.input
                    && !on_path.contains(&value)
                    && !class.is_constant()
                    && !is_size
                {
                    others.push((Use::new(id, slot), value));
                }
            }
        }
        others
    }

    /// The aspect of each value that the region reads; of values without content, `free`.
    pub(crate) fn aspects<'a>(
        &'a self,
        graph: &Graph,
        classes: &'a Classes,
        free: Aspect,
    ) -> impl Fn(ValueId) -> Aspect + 'a {
        let on_path = self.content(graph, classes);
        move |v| {
            if !classes.of_value(v).has(Class::CONTENT) {
                free
            } else if v == self.input || on_path.contains(&v) {
                Aspect::Origin
            } else {
                Aspect::Shape
            }
        }
    }

    /// Takes the features of the output to lie where those of the input do, in whole heads of this
    /// width, where they are spread over several axes only later. What is probed shows whether they do.
    pub(crate) fn align_features(&mut self, trace: &Trace, width: usize) {
        let dims = |v: ValueId| trace.get(v).dims.as_deref();
        let (from, to) = (dims(self.input), dims(self.output));
        let own = &self.input_lane;
        let whole = from.is_some_and(|dims| own.width(dims) == Some(width));
        let alike = from == to && own.sequence == self.output_lane.sequence && own.offset == 0;
        if self.output_lane.feature.is_none() && whole && alike {
            self.output_lane = *own;
        }
    }

    /// Moves the input back to the nearest value whose features are on one axis of this width.
    pub(crate) fn gather_features(&mut self, graph: &Graph, trace: &Trace, width: usize) {
        let (mut value, mut lane) = (self.input, self.input_lane);
        for _ in 0..STEPS {
            let dims = trace.get(value).dims.as_deref().unwrap_or_default();
            let known = lane.feature.is_some();
            let axis = (0..dims.len()).rfind(|a| *a != lane.sequence && dims[*a] == width);
            if known || axis.is_some() {
                lane.feature = lane.feature.or(axis);
                (self.input, self.input_lane) = (value, lane);
                return;
            }
            let Some((id, output)) = graph.producer(value) else {
                return;
            };
            let node = graph.node(id);
            let moves = is_copy(node.op()) || is_rearrangement(node.op());
            let next = node.input(0).filter(|_| moves);
            let Some((next, before)) = next.zip(back(graph, trace, id, output, 0, lane)) else {
                return;
            };
            (value, lane) = (next, before);
        }
    }
}

/// The inputs of a node, and what its bodies read from outside.
pub(crate) fn reads(graph: &Graph, id: NodeId) -> Vec<ValueId> {
    let node = graph.node(id);
    if node.bodies().next().is_none() {
        return node.inputs().iter().flatten().copied().collect();
    }
    let mut values = vec![];
    let mut inside = FxHashSet::default();
    let mut stack = vec![id];
    while let Some(id) = stack.pop() {
        let node = graph.node(id);
        values.extend(node.inputs().iter().flatten().copied());
        for (_, body) in node.bodies() {
            inside.insert(body);
            values.extend(graph.scope(body).outputs());
            stack.extend(graph.scope(body).nodes());
        }
    }
    values.retain(|v| !inside.contains(&graph.value(*v).scope()));
    values
}

/// Everything without content that these values are computed from, themselves included.
pub(crate) fn ancestors(graph: &Graph, classes: &Classes, from: Vec<ValueId>) -> Vec<ValueId> {
    above(graph, from, |value| {
        !classes.of_value(value).has(Class::CONTENT)
    })
}

/// Everything that these values are computed from and that `passes`, themselves included; dimensions count
/// for nothing.
pub(crate) fn above(
    graph: &Graph,
    from: Vec<ValueId>,
    passes: impl Fn(ValueId) -> bool,
) -> Vec<ValueId> {
    let mut stack = from;
    let mut seen = FxHashSet::default();
    let mut found = vec![];
    while let Some(value) = stack.pop() {
        if !passes(value) || !seen.insert(value) {
            continue;
        }
        found.push(value);
        if let Some((id, _)) = graph.producer(value)
            && graph.stored(value).is_none()
            && !shape_only(graph, id)
        {
            stack.extend(reads(graph, id));
        }
    }
    found
}

/// Whether a node depends on the dimensions of its input alone.
pub(crate) fn shape_only(graph: &Graph, id: NodeId) -> bool {
    graph.node(id).is("Shape") || graph.node(id).is("Size")
}
