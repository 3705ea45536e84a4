//! Elements that a mask of content selects, as the inside of a spline's interval, or the tokens of an
//! expert: how many there are does not follow from a trial run, and with it nothing about what is computed
//! from them.

use std::collections::BTreeSet;

use posenc_ir::eval::Trace;
use posenc_ir::{DType, Graph, Model, Node, NodeId, Patch, Use, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::counted::Counted;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::lane::wrap;
use crate::graph::operators::{is_copy, is_layout};

/// The model with every such mask selecting all elements, in which each element depends on at least the
/// tokens that it depends on in the model; `None` where there is no such mask, and where what it selects
/// is not put back in its places, or in those that another mask selects. `trial` is a trial run of a model.
///
/// What is scattered is united with what it is scattered into and with the mask, whichever of them a
/// place gets. What is computed between for all selected elements together is united there as it is here.
pub(crate) fn all_selected(
    model: &Model,
    trace: &Trace,
    classes: &Classes,
    trial: impl FnOnce(&Model) -> Trace,
) -> Option<Selected> {
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
        let Uses { picked, scattered } = Uses::of(graph, (classes, trace), found)?;
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
    let last = graph.nodes().map(|(id, _)| id).max()?;
    let mut next = model.clone();
    next.commit(out.finish()).ok()?;
    puts.sort_by_key(|(id, _)| trace.step(*id));
    let trace = trial(&next);
    let patch = unite(next.graph(), &trace, &puts)?;
    next.commit(patch).ok()?;
    Some(Selected { model: next, last })
}

/// Unites what is scattered with what it is scattered into, and with the mask. `puts` are in the order of
/// computation.
fn unite(graph: &Graph, trace: &Trace, puts: &[(NodeId, ValueId)]) -> Option<Patch> {
    let mut out = graph.emitter(graph.main(), "united");
    let mut united = FxHashMap::default();
    for (id, mask) in puts {
        let node = graph.node(*id);
        let (data, rows, given) = (node.input(0)?, node.input(2)?, node.output(0)?);
        let dims = trace.get(rows).dims.as_deref()?;
        let axis = match node.op() {
            "ScatterND" => 0,
            _ => wrap(node.int("axis").ok()?.unwrap_or(0), dims.len())?,
        };
        // One row for each element of the mask.
        if trace.get(*mask).elements()? != dims[axis] {
            return None;
        }
        out.set_scope(node.scope());
        let any = out.ints("any", &[1]);
        let any = out.cast(any, DType::Bool);
        let is_in = out.cast(*mask, DType::Bool);
        let flat = out.ints("flat", &[-1]);
        let is_in = out.op("Reshape", &[is_in, flat]);
        let behind: Vec<i64> = (1..(dims.len() - axis) as i64).collect();
        let is_in = match behind[..] {
            [] => is_in,
            _ => {
                let axes = out.ints("axes", &behind);
                out.op("Unsqueeze", &[is_in, axes])
            }
        };
        let with_mask = out.op("Where", &[is_in, rows, rows]);
        out.redirect_use(rows, Use::new(*id, 2), with_mask).ok()?;
        let before = united.get(&data).copied().unwrap_or(data);
        let both = out.op("Where", &[any, given, before]);
        out.redirect(given, both).ok()?;
        united.insert(given, both);
    }
    Some(out.finish())
}

/// A model in which every mask of content selects all elements.
pub(crate) struct Selected {
    pub(crate) model: Model,
    /// The last node of the model that it was made from.
    last: NodeId,
}

impl Selected {
    /// The node of the model that an operator which mixes tokens here stands for: what was added unites
    /// what is scattered with others.
    pub(crate) fn own(&self, mixer: NodeId) -> NodeId {
        if mixer <= self.last {
            return mixer;
        }
        let graph = self.model.graph();
        let node = graph.node(mixer);
        let before = node.inputs().iter().flatten();
        let before = before.filter_map(|v| Some(graph.producer(*v)?.0));
        let behind = node.outputs().iter().flatten();
        let behind = behind.flat_map(|v| graph.uses(*v)).map(|at| at.node);
        let mut around = before.chain(behind);
        let scatters = |id: &NodeId| graph.node(*id).op().starts_with("Scatter");
        around.find(scatters).unwrap_or(mixer)
    }
}

/// What is done at the places that a mask selects.
#[derive(Default)]
struct Uses {
    /// `Gather`s, `GatherND`s and `GatherElements`.
    picked: Vec<NodeId>,
    /// `ScatterND`s and `ScatterElements`.
    scattered: Vec<NodeId>,
}

impl Uses {
    /// `None` where the places, or numbers computed from them, go anywhere but to these, and to sizes.
    fn of(graph: &Graph, (classes, trace): (&Classes, &Trace), places: ValueId) -> Option<Self> {
        let is_content = |v: ValueId| classes.of_value(v).has(Class::CONTENT);
        // Zeros are the same at every place.
        let is_uniform = |v: ValueId| {
            let numbers = trace.get(v).to_f64();
            numbers.is_some_and(|all| all.iter().all(|x| Some(x) == all.first()))
        };
        let indices = indices(graph, places);
        let mut own = Self::default();
        for at in indices.iter().flat_map(|value| graph.uses(*value)) {
            let node = graph.node(at.node);
            let data = node.input(0)?;
            let mut others = node.inputs().iter().flatten();
            match (node.op(), at.slot()) {
                ("Shape", _) => {}
                // A table would give each element what belongs to its place.
                ("Gather" | "GatherND" | "GatherElements", 1)
                    if (is_content(data) || is_uniform(data))
                        && !indices.contains(&data)
                        && node.int("batch_dims").ok()?.unwrap_or(0) == 0 =>
                {
                    own.picked.push(at.node);
                }
                ("ScatterND" | "ScatterElements", 1) => own.scattered.push(at.node),
                (op, slot)
                    if is_index(op, slot)
                        && others.all(|v| indices.contains(v) || !is_content(*v)) => {}
                _ => return None,
            }
        }
        let scattered = own.scattered.iter().map(|id| graph.node(*id));
        let gives_places = |node: &Node| {
            [0, 2]
                .iter()
                .any(|slot| node.input(*slot).is_none_or(|v| indices.contains(&v)))
        };
        (!scattered.into_iter().any(gives_places)).then_some(own)
    }
}

/// The places that a mask selects, and indices that are computed from them.
fn indices(graph: &Graph, places: ValueId) -> BTreeSet<ValueId> {
    let mut all = BTreeSet::from([places]);
    let mut stack = vec![places];
    while let Some(value) = stack.pop() {
        let uses = graph.uses(value).iter();
        let makes = uses.filter(|at| is_index(graph.node(at.node).op(), at.slot()));
        let made = makes.flat_map(|at| graph.node(at.node).outputs().iter().flatten());
        stack.extend(made.copied().filter(|out| all.insert(*out)));
    }
    all
}

/// Whether an operator makes indices of other indices, which it reads in this slot.
fn is_index(op: &str, slot: usize) -> bool {
    match op {
        "Add" | "Sub" | "Mul" | "Concat" => true,
        "Slice" | "Split" | "Gather" | "Expand" => slot == 0,
        _ => slot == 0 && (is_layout(op) || is_copy(op)),
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
