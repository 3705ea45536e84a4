//! Running part of a model again with other values.

use rustc_hash::{FxHashMap, FxHashSet};

use super::memory::{Memory, State};
use super::run::Run;
use super::sequence;
use super::trace::Trace;
use super::{Budget, EvalError, Value, Why};
use crate::id::{NodeId, ValueId};
use crate::model::Model;

/// A trace with the values that this run changed.
struct Overlay<'a> {
    base: &'a Trace,
    changed: FxHashMap<ValueId, Value>,
}

impl Memory for Overlay<'_> {
    fn get(&self, id: ValueId) -> &Value {
        match self.changed.get(&id) {
            Some(value) => value,
            None => self.base.get(id),
        }
    }

    fn state(&self, id: ValueId) -> State {
        if self.changed.contains_key(&id) {
            State::Live
        } else {
            self.base.state(id)
        }
    }

    fn set(&mut self, id: ValueId, value: Value, _: State) {
        self.changed.insert(id, value);
    }
}

/// Runs the nodes between `seeds` and `targets` again; everything else is read from `base`, a trace
/// of the same model. Returns one value per target, in order.
///
/// Elements are computed for all values that the seeds reach. Where every seed has the dimensions
/// that it has in `base`, shapes are read from `base`.
///
/// # Errors
/// When the elements of a target cannot be computed from the seeds and the base.
pub fn probe(
    model: &Model,
    base: &Trace,
    seeds: &FxHashMap<ValueId, Value>,
    targets: &[ValueId],
    budget: &Budget,
) -> Result<Vec<Value>, EvalError> {
    let memory = Overlay {
        base,
        changed: seeds.clone(),
    };
    let mut run = Run::new(model, seeds, &|_| false, budget, memory);
    let nodes = between(model, base, seeds, targets);
    let reads: Vec<Vec<ValueId>> = nodes.iter().map(|id| reads(model, *id)).collect();
    let mut readers = readers(model, &nodes, &reads, targets);
    for (node, reads) in nodes.into_iter().zip(&reads) {
        let touched = reads.iter().any(|v| run.memory.changed.contains_key(v));
        if touched {
            run.node(node);
        }
        for value in reads {
            let Some(left) = readers.get_mut(value) else {
                continue;
            };
            *left -= 1;
            if *left == 0 && run.memory.changed.contains_key(value) {
                run.forget(*value);
            }
        }
    }
    let mut known = FxHashMap::default();
    let mut found = Vec::with_capacity(targets.len());
    for &target in targets {
        if run.memory.state(target) == State::Deferred {
            run.force(target, &mut known);
        }
        let value = known.get(&target).unwrap_or_else(|| run.memory.get(target));
        if value.data.is_none() {
            return Err(Why::NotReached.into());
        }
        found.push(value.clone());
    }
    Ok(found)
}

/// The values that a node reads, with those that its bodies read.
fn reads(model: &Model, id: NodeId) -> Vec<ValueId> {
    crate::order::reads(model.graph(), id)
}

/// How often each value is read in a run of these nodes; its elements are forgotten after that, so that
/// the next values have their memory.
fn readers(
    model: &Model,
    nodes: &[NodeId],
    reads: &[Vec<ValueId>],
    targets: &[ValueId],
) -> FxHashMap<ValueId, usize> {
    let graph = model.graph();
    // Who reads a sequence reads what it was made of.
    let made = nodes.iter().zip(reads);
    let made = made.filter(|(id, _)| sequence::is_maker(graph.node(**id)));
    let kept = made.flat_map(|(_, reads)| reads).chain(targets);
    let mut readers = FxHashMap::default();
    for value in reads.iter().flatten().chain(kept) {
        *readers.entry(*value).or_insert(0) += 1;
    }
    readers
}

/// The nodes between the seeds and the targets, in the order of the base run.
fn between(
    model: &Model,
    base: &Trace,
    seeds: &FxHashMap<ValueId, Value>,
    targets: &[ValueId],
) -> Vec<NodeId> {
    let graph = model.graph();
    // Nodes that ran before the first reader of a seed cannot depend on one.
    let mut ids: Vec<ValueId> = seeds.keys().copied().collect();
    ids.sort_unstable();
    let readers = ids.iter().flat_map(|v| graph.uses(*v));
    let steps = readers.map(|u| base.step(u.node)).filter(|step| *step > 0);
    let Some(first) = steps.min() else {
        return Vec::new();
    };
    let same = |v: &ValueId| seeds.get(v).is_some_and(|s| s.dims == base.get(*v).dims);
    let fixed = ids.iter().all(same);
    let mut seen: FxHashSet<NodeId> = FxHashSet::default();
    let mut stack: Vec<ValueId> = targets.to_vec();
    let mut found = Vec::new();
    while let Some(value) = stack.pop() {
        if seeds.contains_key(&value) {
            continue;
        }
        let Some((id, _)) = graph.producer(value) else {
            continue;
        };
        let node = graph.node(id);
        let measures = node.is("Shape") || node.is("Size");
        if base.step(id) < first || fixed && measures || !seen.insert(id) {
            continue;
        }
        found.push(id);
        stack.extend(reads(model, id));
    }
    found.sort_unstable_by_key(|id| base.step(*id));
    found
}
