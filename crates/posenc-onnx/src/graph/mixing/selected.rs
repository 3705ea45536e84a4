//! Elements that a mask of content selects, as the inside of a spline's interval: how many there are
//! does not follow from a trial run, and with it nothing about what is computed from them.

use posenc_ir::eval::Trace;
use posenc_ir::{DType, Emitter, Graph, Model, NodeId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::counted::Counted;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::operators::is_copy;

/// The model with every such mask selecting all elements, in which each element depends on at least the
/// tokens that it depends on in the model; `None` where there is no such mask, and where what it selects
/// is not put back in its places, or in those that another mask selects.
///
/// What is scattered is united with what it is scattered into and with the mask, whichever of them a
/// place gets. What is computed between for all selected elements together is united there as it is here.
pub(crate) fn all_selected(model: &Model, trace: &Trace, classes: &Classes) -> Option<Selected> {
    let graph = model.graph();
    let is_open = |id: &NodeId| {
        let node = graph.node(*id);
        let (mask, places) = (node.input(0), node.output(0));
        let is_content = mask.is_some_and(|v| classes.of_value(v).has(Class::CONTENT));
        node.is("NonZero") && is_content && places.is_some_and(|v| trace.get(v).dims.is_none())
    };
    let masks: Vec<NodeId> = graph.nodes().map(|(id, _)| id).filter(is_open).collect();
    if masks.is_empty() {
        return None;
    }
    // Axes are inputs of operators from this version on.
    if model.opset() < 13 {
        return None;
    }
    let mut out = graph.emitter(graph.main(), "selected");
    let mut puts: Vec<(NodeId, ValueId)> = vec![];
    let mut picks: FxHashMap<NodeId, ValueId> = FxHashMap::default();
    let mut places = vec![];
    for id in masks {
        let node = graph.node(id);
        let (mask, found) = (node.input(0)?, node.output(0)?);
        let Uses { picked, scattered } = Uses::of(graph, found)?;
        places.push(found);
        puts.extend(scattered.into_iter().map(|id| (id, mask)));
        picks.extend(picked.into_iter().map(|id| (id, mask)));
        out.set_scope(node.scope());
        let dims = out.op("Shape", &[mask]);
        let one = out.ints("one", &[1]);
        let all = out.op("Expand", &[one, dims]);
        let all = out.op("NonZero", &[all]);
        out.redirect(found, all).ok()?;
    }
    let all: FxHashSet<NodeId> = puts.iter().map(|(id, _)| *id).collect();
    if !puts
        .iter()
        .all(|put| is_put_back(graph, *put, &picks, &all))
    {
        return None;
    }
    let picked = picks.keys().filter_map(|id| graph.node(*id).output(0));
    let selected: Vec<ValueId> = places.into_iter().chain(picked).collect();
    let counted = Counted { graph, classes };
    if !counted.are_sizes(&selected, &all) {
        return None;
    }
    puts.sort_by_key(|(id, _)| trace.step(*id));
    let mut united = FxHashMap::default();
    for (id, mask) in puts {
        let node = graph.node(id);
        let (data, given) = (node.input(0)?, node.output(0)?);
        out.set_scope(node.scope());
        let is_in = broadcast(trace, &mut out, mask, data)?;
        let before = united.get(&data).copied().unwrap_or(data);
        let both = out.op("Where", &[is_in, given, before]);
        out.redirect(given, both).ok()?;
        united.insert(given, both);
    }
    let patch = out.finish();
    let mut next = model.clone();
    next.commit(patch).ok()?;
    let last = graph.nodes().map(|(id, _)| id).max()?;
    Some(Selected { model: next, last })
}

/// A model in which every mask of content selects all elements.
pub(crate) struct Selected {
    pub(crate) model: Model,
    /// The last node of the model that it was made from.
    last: NodeId,
}

impl Selected {
    /// The node of the model that an operator which mixes tokens here stands for: what was added unites
    /// what a `ScatterND` gives with others.
    pub(crate) fn own(&self, mixer: NodeId) -> NodeId {
        let graph = self.model.graph();
        let read = graph.node(mixer).inputs().iter().flatten();
        let mut before = read.filter_map(|v| Some(graph.producer(*v)?.0));
        let scattered = before.find(|id| *id <= self.last);
        scattered.filter(|_| mixer > self.last).unwrap_or(mixer)
    }
}

/// What is done at the places that a mask selects.
#[derive(Default)]
struct Uses {
    /// `GatherND`s.
    picked: Vec<NodeId>,
    /// `ScatterND`s.
    scattered: Vec<NodeId>,
}

impl Uses {
    /// `None` where the places go anywhere but to these, and to sizes.
    fn of(graph: &Graph, places: ValueId) -> Option<Self> {
        let mut uses = Self::default();
        for at in graph.uses(places) {
            let node = graph.node(at.node);
            match node.op() {
                "Shape" => {}
                "Transpose" => {
                    for at in graph.uses(node.output(0)?) {
                        let node = graph.node(at.node);
                        match (node.op(), at.slot()) {
                            ("Shape", _) => {}
                            ("GatherND", 1) if node.int("batch_dims").ok()?.unwrap_or(0) == 0 => {
                                uses.picked.push(at.node);
                            }
                            ("ScatterND", 1) => uses.scattered.push(at.node),
                            _ => return None,
                        }
                    }
                }
                _ => return None,
            }
        }
        Some(uses)
    }
}

/// Whether what is scattered by a mask was picked by the same one: the elements of another would come
/// to other places.
fn is_put_back(
    graph: &Graph,
    (id, mask): (NodeId, ValueId),
    picks: &FxHashMap<NodeId, ValueId>,
    puts: &FxHashSet<NodeId>,
) -> bool {
    let mut stack: Vec<ValueId> = graph.node(id).input(2).into_iter().collect();
    let mut seen = FxHashSet::default();
    while let Some(value) = stack.pop() {
        let Some((id, _)) = graph.producer(value).filter(|(id, _)| seen.insert(*id)) else {
            continue;
        };
        match picks.get(&id) {
            Some(other) if origin(graph, *other) != origin(graph, mask) => return false,
            Some(_) => {}
            // Behind an earlier one, all elements are in their places.
            None if puts.contains(&id) => {}
            None => stack.extend(graph.node(id).inputs().iter().flatten()),
        }
    }
    true
}

/// A mask before it was broadcast.
fn origin(graph: &Graph, mut mask: ValueId) -> ValueId {
    while let Some((id, _)) = graph.producer(mask) {
        let node = graph.node(id);
        match node.input(0) {
            Some(before) if node.is("Expand") || is_copy(node.op()) => mask = before,
            _ => break,
        }
    }
    mask
}

/// A mask of the leading axes of `data`, with the rank of `data`.
fn broadcast(
    trace: &Trace,
    out: &mut Emitter<'_>,
    mask: ValueId,
    data: ValueId,
) -> Option<ValueId> {
    let rank = |value: ValueId| Some(trace.get(value).dims.as_ref()?.len());
    let more: Option<Vec<i64>> = (rank(mask)?..rank(data)?)
        .map(|axis| i64::try_from(axis).ok())
        .collect();
    let mask = out.cast(mask, DType::Bool);
    Some(match &more?[..] {
        [] => mask,
        more => {
            let axes = out.ints("axes", more);
            out.op("Unsqueeze", &[mask, axes])
        }
    })
}
