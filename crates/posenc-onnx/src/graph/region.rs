//! A region that positions act in, between a projection and the product of queries and keys.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, NodeId, Use, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::graph::dataflow::{Class, Classes};
use crate::graph::lane::{Lane, back};
use crate::graph::operators::{is_copy, is_rearrangement};

/// Changes of shape around a rotation are few.
const STEPS: usize = 8;

/// A region of a stretch that positions act in: from one content value to another.
#[derive(Clone, Debug)]
pub struct Region {
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
    /// Where a fused operator turns its operand itself: what it reads.
    pub inside: Option<Inside>,
}

/// The rotation within a fused operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside {
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
    /// Where the operator reads how far each sequence goes: the last position of each.
    pub positions: Option<ValueId>,
}

/// What counts of a value that a region reads.
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
    /// The content on the way from what enters the region to what leaves it.
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

    /// What counts of the values that the region reads, where content-free ones count as `free`.
    pub(crate) fn counts<'a>(
        &'a self,
        graph: &Graph,
        classes: &'a Classes,
        free: Aspect,
    ) -> impl Fn(ValueId) -> Aspect + 'a {
        let on_the_way = self.content(graph, classes);
        move |v| {
            if !classes.of_value(v).has(Class::CONTENT) {
                free
            } else if v == self.input || on_the_way.contains(&v) {
                Aspect::Origin
            } else {
                Aspect::Shape
            }
        }
    }

    /// Where the content enters with its features on several axes: moves on to the value that has
    /// them on one, of this width.
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

/// What a node reads, for a node with bodies what these read of the outside as well.
pub(crate) fn reads(graph: &Graph, id: NodeId) -> Vec<ValueId> {
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

/// Whether a node tells of its input no more than the dimensions.
pub(crate) fn shape_only(graph: &Graph, id: NodeId) -> bool {
    graph.node(id).is("Shape") || graph.node(id).is("Size")
}
