//! What the values that enter a rotation are computed from.

use std::collections::{BTreeSet, VecDeque};

use posenc_ir::{Graph, NodeId, Use, ValueId};
use rustc_hash::FxHashSet;

use crate::detect::found::Found;
use crate::detect::rotary::site::RotaryOperand;
use crate::graph::dataflow::{Class, Classes};

/// What the values that enter a rotation are computed from.
pub(crate) struct Cone {
    /// Every value that carries no content, in order of discovery from the rotation backwards.
    values: Vec<ValueId>,
    pub(crate) nodes: FxHashSet<NodeId>,
    pub(crate) waves: Vec<ValueId>,
    /// The positions, where a fused operator has an input for them.
    given: Option<ValueId>,
}

/// Whether a branch chooses this value among constants.
fn is_choice(graph: &Graph, found: &Found, value: ValueId) -> bool {
    let Some((id, output)) = graph.producer(value) else {
        return false;
    };
    let node = graph.node(id);
    let constant = |v: &ValueId| found.classes.of_value(*v).is_constant();
    node.is("If")
        && node.bodies().all(|(_, body)| {
            let made = graph.scope(body).outputs().get(output);
            made.is_some_and(constant)
        })
}

impl Cone {
    pub(crate) fn of(graph: &Graph, classes: &Classes, half: &RotaryOperand) -> Self {
        let mut cone = Self {
            values: vec![],
            nodes: half.region.entries.iter().map(|u| u.node).collect(),
            waves: vec![],
            given: half.region.inside.and_then(|i| i.positions),
        };
        let entry = |u: &Use| graph.node(u.node).input(u.slot());
        let mut queue: VecDeque<ValueId> = half.region.entries.iter().filter_map(entry).collect();
        let mut seen = FxHashSet::default();
        while let Some(value) = queue.pop_front() {
            if !seen.insert(value) || classes.of_value(value).has(Class::CONTENT) {
                continue;
            }
            cone.values.push(value);
            let Some((id, _)) = graph.producer(value) else {
                continue;
            };
            let node = graph.node(id);
            // What depends on a length only contains no frequency.
            if node.is("Shape") || node.is("Size") {
                continue;
            }
            cone.nodes.insert(id);
            if node.is("Cos") || node.is("Sin") {
                cone.waves.push(value);
            }
            queue.extend(node.inputs().iter().flatten());
        }
        cone
    }

    /// Constant float values of at least `elements`, stored ones first, then by distance.
    pub(crate) fn constants(&self, graph: &Graph, found: &Found, elements: usize) -> Vec<ValueId> {
        let is_candidate = |v: &ValueId| {
            let value = found.trace.get(*v);
            (found.classes.of_value(*v).is_constant() || is_choice(graph, found, *v))
                && value.dtype.is_some_and(|t| t.is_float())
                && value
                    .dims
                    .as_ref()
                    .is_some_and(|d| d.iter().product::<usize>() >= elements)
        };
        let mut out: Vec<ValueId> = self.values.iter().copied().filter(is_candidate).collect();
        out.sort_by_key(|v| graph.stored(*v).is_none());
        out
    }

    /// The first of [`all_positions`](Self::all_positions).
    pub(crate) fn positions(&self, graph: &Graph, found: &Found) -> Option<ValueId> {
        self.all_positions(graph, found).into_iter().next()
    }

    /// The positions: integers, where the graph has them so, that count up to the last token of
    /// the trial run and follow from no others that do.
    pub(crate) fn all_positions(&self, graph: &Graph, found: &Found) -> Vec<ValueId> {
        if let Some(given) = self.given {
            return vec![given];
        }
        positions_among(graph, found, &self.values)
    }
}

/// The positions among values: integers, where there are such, that count up to the last token of the trial run and
/// follow from no others that do.
pub(crate) fn positions_among(graph: &Graph, found: &Found, values: &[ValueId]) -> Vec<ValueId> {
    let counts = |v: &ValueId| -> bool {
        let Some(data) = found.trace.get(*v).to_f64() else {
            return false;
        };
        let got: BTreeSet<i64> = data.iter().map(|x| *x as i64).collect();
        let last = (found.lengths.past + found.lengths.sequence) as i64 - 1;
        let whole = data.iter().all(|x| x.fract() == 0.0);
        whole && got.len() >= found.lengths.sequence.min(2) && got.last() == Some(&last)
    };
    let positional = |v: &&ValueId| found.classes.of_value(**v).has(Class::POSITION);
    let all: Vec<ValueId> = values.iter().filter(positional).copied().collect();
    let is_int = |v: &ValueId| found.trace.get(*v).dtype.is_some_and(|t| t.is_int());
    let counting: Vec<ValueId> = all.into_iter().filter(counts).collect();
    let ints: Vec<ValueId> = counting.iter().copied().filter(is_int).collect();
    let all = if ints.is_empty() { counting } else { ints };
    // What is counted from others follows them; what follows nothing can replace a table.
    let set: FxHashSet<ValueId> = all.iter().copied().collect();
    let follows = |v: &ValueId| derives(graph, *v, &set);
    all.into_iter().filter(|v| !follows(v)).collect()
}

/// Whether a value is computed from another one of a set.
pub(crate) fn derives(graph: &Graph, value: ValueId, set: &FxHashSet<ValueId>) -> bool {
    let mut stack = vec![value];
    let mut seen = FxHashSet::default();
    while let Some(at) = stack.pop() {
        let Some((id, _)) = graph.producer(at) else {
            continue;
        };
        for input in graph.node(id).inputs().iter().flatten() {
            if *input != value && set.contains(input) {
                return true;
            }
            if seen.insert(*input) {
                stack.push(*input);
            }
        }
    }
    false
}
