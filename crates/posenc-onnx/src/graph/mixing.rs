//! Which operators mix tokens, whatever they are part of.
//!
//! Every element of a value depends on a set of tokens. The sets follow from the operators and the
//! dimensions of a trial run, without weights: a product unites the sets along the axis that it
//! contracts, a reshape moves them. An operator mixes tokens where a union is none of its parts.
//!
//! Attention that was recognized is let through: its products read keys and values as if they
//! depended on no token, so that what they give belongs to the token of the query. What is left
//! was not read as attention.

mod rules;
mod selected;
mod sets;
#[cfg(test)]
mod tests;
mod tokens;
mod weighted;

use std::cell::OnceCell;

use posenc_ir::eval::Trace;
use posenc_ir::{Dim, Graph, Model, NodeId, ScopeId, Use, ValueId};
use rustc_hash::FxHashSet;

use crate::graph::dataflow::{Class, Classes, live};
use crate::graph::operators::is_projection;
use crate::graph::ports::{Lengths, Port, Ports, Role};
pub(crate) use rules::{Known, Mixing};
use rules::{Rules, Step};
pub(crate) use selected::all_selected;
use sets::Sets;
pub(crate) use tokens::{Along, Tokens};
use weighted::Weights;

/// An operator that mixes tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mixer {
    pub(crate) node: NodeId,
    pub(crate) mixing: Mixing,
}

/// What a trial run shows of tokens.
#[derive(Debug)]
pub(crate) struct Mixed {
    /// Every operator that mixes tokens and is no known attention, in order of computation.
    pub(crate) mixers: Vec<Mixer>,
    /// The tokens that values depend on.
    pub(crate) tokens: Tokens,
}

/// Follows tokens through the graph.
pub(crate) fn follow(
    model: &Model,
    trace: &Trace,
    classes: &Classes,
    (ports, lengths): (&Ports, Lengths),
    known: &Known,
) -> Mixed {
    let graph = model.graph();
    let mut walk = Walk {
        rules: Rules {
            model,
            trace,
            classes,
            known,
        },
        sets: vec![None; graph.value_count()],
        live: OnceCell::new(),
        mixers: vec![],
    };
    for port in ports.iter() {
        let dims = trace.get(port.value).dims.clone();
        let dims = dims.unwrap_or_else(|| ports.dims(port, lengths));
        walk.sets[port.value.index()] = of_input((graph, ports), port, &dims, lengths);
    }
    walk.scope(graph.main());
    Mixed {
        mixers: walk.mixers,
        tokens: Tokens(walk.sets),
    }
}

/// Nodes to look at between an input and the first product with it.
const NEAR: usize = 32;

/// Whether a convolution is the first product that an input enters.
fn is_convolved(graph: &Graph, input: ValueId) -> bool {
    let mut values = vec![input];
    let mut seen = FxHashSet::default();
    while let Some(value) = values.pop() {
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            if node.op().contains("Conv") {
                return true;
            }
            // Behind a transposition the axes are others.
            let through = !is_projection(node) && !node.is("Transpose");
            if through && seen.len() < NEAR && seen.insert(at.node) {
                values.extend(node.outputs().iter().flatten());
            }
        }
    }
    false
}

/// Whether an input has samples of sound, of which a convolution makes frames.
fn is_wave(graph: &Graph, port: &Port) -> bool {
    let has_samples = matches!(port.dims[..], [_, Dim::Known(2..)]);
    has_samples && is_convolved(graph, port.value)
}

/// The tokens of an input.
fn of_input(
    (graph, ports): (&Graph, &Ports),
    port: &Port,
    dims: &[usize],
    lengths: Lengths,
) -> Option<Sets> {
    let axes = token_axes((graph, ports), port, dims, lengths)?;
    Some(Sets::numbered(dims, &axes, port.role == Role::Past))
}

/// The axes of tokens of an input that carries content; `None` for another input.
pub(crate) fn token_axes(
    (graph, ports): (&Graph, &Ports),
    port: &Port,
    dims: &[usize],
    lengths: Lengths,
) -> Option<Vec<usize>> {
    let last = dims.len().checked_sub(1)?;
    let is_open = |axis: usize| !matches!(port.dims.get(axis), Some(Dim::Known(_)));
    Some(match port.role {
        Role::Positions | Role::Padding | Role::Counts | Role::CacheFlag => return None,
        _ if ports.is_setting(port) && !is_wave(graph, port) => return None,
        Role::Tokens | Role::TokenTypes | Role::Content if port.turned => vec![0],
        Role::Tokens | Role::TokenTypes => vec![last],
        Role::Past => {
            let is_past = |axis: &usize| is_open(*axis) && dims[*axis] == lengths.past;
            vec![(1..=last).rev().find(is_past)?]
        }
        Role::Content if last >= 3 => {
            let is_color = |axis: usize| matches!(port.dims.get(axis), Some(Dim::Known(1 | 3 | 4)));
            if is_color(last) && !is_color(last - 2) {
                (last - 2..last).collect()
            } else {
                (last - 1..=last).collect()
            }
        }
        Role::Content if last == 2 && is_convolved(graph, port.value) => vec![2],
        Role::Content if !is_open(last.min(1)) && is_taken_apart(graph, port.value) => {
            return None;
        }
        Role::Content => vec![last.min(1)],
    })
}

/// Whether every reader of an input takes one index of its second axis, as that of the states of
/// several layers.
fn is_taken_apart(graph: &Graph, input: ValueId) -> bool {
    let one = |at: &Use| {
        let node = graph.node(at.node);
        let index = node.input(1).and_then(|index| graph.constant(index));
        let axis = node.int("axis").ok().flatten();
        let is_one = index.is_some_and(|index| index.len() == 1);
        node.is("Gather") && at.slot() == 0 && axis == Some(1) && is_one
    };
    graph.uses(input).iter().all(one)
}

struct Walk<'a> {
    rules: Rules<'a>,
    /// The tokens of each value; `None` for one that depends on none.
    sets: Vec<Option<Sets>>,
    /// Whether an output of the model depends on a node: what others mix is lost.
    live: OnceCell<Vec<bool>>,
    mixers: Vec<Mixer>,
}

/// Passes over a body whose outputs are its inputs again: sets only grow, mostly once.
const MOST_PASSES: usize = 4;

impl Walk<'_> {
    fn get(&self, value: ValueId) -> Option<&Sets> {
        self.sets[value.index()].as_ref()
    }

    /// Gives a value its tokens, if it depends on content at all.
    fn set(&mut self, value: ValueId, sets: Option<Sets>) {
        let is_content = self.rules.classes.of_value(value).has(Class::CONTENT);
        self.sets[value.index()] = sets.filter(|sets| is_content && sets.all() != 0);
    }

    fn report(&mut self, node: NodeId, mixing: Mixing) {
        let is_new = self.mixers.last().is_none_or(|last| last.node != node);
        let live = || live(self.rules.model.graph());
        if is_new && self.live.get_or_init(live)[node.index()] {
            self.mixers.push(Mixer { node, mixing });
        }
    }

    fn scope(&mut self, scope: ScopeId) {
        let graph = self.rules.model.graph();
        for id in graph.order(scope).unwrap_or_default() {
            if graph.node(id).bodies().next().is_some() {
                self.control_flow(id);
            } else {
                self.node(id);
            }
        }
    }

    /// The tokens of the outputs of a node without bodies.
    fn node(&mut self, id: NodeId) {
        let node = self.rules.model.graph().node(id);
        let inputs: Vec<Option<&Sets>> = (0..node.inputs().len())
            .map(|slot| self.operand(id, slot))
            .collect();
        // What carries no content, as a length, depends on no token.
        let is_content = |out: &ValueId| self.rules.classes.of_value(*out).has(Class::CONTENT);
        let carries = node.outputs().iter().flatten().any(is_content);
        let step = if !carries || inputs.iter().all(Option::is_none) {
            Step::nothing()
        } else {
            let known = self.rules.step(id, &inputs);
            known.unwrap_or_else(|| self.rules.unknown(id, &inputs))
        };
        if let Some(mixing) = step.mixing {
            let is_sum = mixing == Mixing::Other && self.is_weighted_sum(id);
            self.report(id, if is_sum { Mixing::Pooling } else { mixing });
        }
        let sets = step.outputs.into_iter().chain(std::iter::repeat(None));
        for (out, sets) in node.outputs().iter().zip(sets) {
            if let Some(out) = *out {
                self.set(out, sets);
            }
        }
    }

    /// Whether a product sums tokens, whatever their order.
    fn is_weighted_sum(&self, id: NodeId) -> bool {
        let Rules {
            model,
            trace,
            classes,
            ..
        } = self.rules;
        let is_of_tokens = |value: ValueId, axis: usize| {
            let dims = trace.get(value).dims.as_ref();
            let size = dims.and_then(|dims| dims.get(axis));
            let along = size.and_then(|size| self.get(value)?.along(axis, *size));
            // Tokens beyond the last bit begin with the first again.
            along.is_some_and(|(sets, alone)| {
                let ones = sets.iter().all(|set| set.count_ones() == 1);
                alone && ones && sets.windows(2).all(|pair| pair[0] != pair[1])
            })
        };
        let weights = Weights {
            graph: model.graph(),
            classes,
            trace,
            is_of_tokens: &is_of_tokens,
            takes_rest: model.opset() < 13,
            is_elementwise: rules::is_elementwise,
        };
        weights.are_summed_with(model.graph().node(id))
    }

    /// The tokens of an input, unless attention reads keys or values there.
    fn operand(&self, id: NodeId, slot: usize) -> Option<&Sets> {
        let value = self.rules.model.graph().node(id).input(slot)?;
        let is_known = self.rules.known.keys_and_values.contains(&(id, slot));
        self.get(value).filter(|_| !is_known)
    }

    fn control_flow(&mut self, id: NodeId) {
        let node = self.rules.model.graph().node(id);
        match node.op() {
            "If" => self.branches(id),
            "Loop" => self.repeated(id, 2, 0),
            "Scan" => {
                let scanned = node.int("num_scan_inputs").ok().flatten();
                let scanned = scanned.and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
                self.repeated(id, 0, scanned);
            }
            _ => self.node(id),
        }
    }

    /// The branches of an `If` that the trial run took.
    fn branches(&mut self, id: NodeId) {
        let graph = self.rules.model.graph();
        let node = graph.node(id);
        let condition = node
            .input(0)
            .and_then(|v| self.rules.trace.get(v).scalar_i64());
        let taken = |name: &str| condition.is_none_or(|c| (c != 0) == (name == "then_branch"));
        let bodies: Vec<ScopeId> = (node.bodies())
            .filter(|(name, _)| taken(name))
            .map(|(_, body)| body)
            .collect();
        for body in &bodies {
            self.scope(*body);
        }
        for (i, out) in node.outputs().iter().enumerate() {
            let Some(out) = *out else { continue };
            let ends = bodies
                .iter()
                .filter_map(|body| graph.scope(*body).outputs().get(i));
            let mut sets: Option<Sets> = None;
            for own in ends
                .filter_map(|v| self.get(*v).cloned())
                .collect::<Vec<_>>()
            {
                sets = Some(match sets {
                    None => own,
                    Some(sets) => match sets.union(&own) {
                        Some((both, _)) => both,
                        None => Sets::uniform(0, sets.all() | own.all()),
                    },
                });
            }
            self.set(out, sets);
        }
    }

    /// A body that runs several times, on carried values and on slices of the last `scanned`
    /// inputs; the first `skipped` inputs of the node are none of either.
    fn repeated(&mut self, id: NodeId, skipped: usize, scanned: usize) {
        let graph = self.rules.model.graph();
        let node = graph.node(id);
        let Some(body) = node.bodies().map(|(_, body)| body).next() else {
            return;
        };
        let (inputs, outputs) = (graph.scope(body).inputs(), graph.scope(body).outputs());
        let given: Vec<Option<ValueId>> = node.inputs().iter().skip(skipped).copied().collect();
        let carried = given.len().saturating_sub(scanned);
        let own = &inputs[skipped.min(inputs.len())..];
        // The tokens of each trip, by the axis that is scanned.
        let mut trips: Vec<(Vec<u64>, usize)> = vec![];
        let mut is_scanned = false;
        for (i, (input, value)) in own.iter().zip(&given).enumerate() {
            let mut sets = value.and_then(|v| self.get(v).cloned());
            if let Some(whole) = sets.as_ref().filter(|_| i >= carried) {
                let axis = rules::scan_axis(node, i - carried, whole.rank());
                let (united, mixed) = whole.over(&[axis]);
                if mixed {
                    is_scanned = true;
                    let size = value.and_then(|v| {
                        let dims = self.rules.trace.get(v).dims.as_ref()?;
                        dims.get(axis).copied()
                    });
                    trips.extend(size.and_then(|size| Some((whole.along(axis, size)?.0, size))));
                }
                sets = Some(united.without(&[axis]));
            }
            self.set(*input, sets);
        }
        // The outputs of the body begin with the condition of a Loop.
        let results = &outputs[usize::from(skipped > 0).min(outputs.len())..];
        for pass in 1.. {
            let before = self.mixers.len();
            self.scope(body);
            let mut grown = false;
            for (input, result) in own.iter().zip(results).take(carried) {
                let sets = match (self.get(*input), self.get(*result)) {
                    (Some(a), Some(b)) => match a.union(b) {
                        Some((both, _)) => Some(both.compact()),
                        None => Some(Sets::uniform(0, a.all() | b.all())),
                    },
                    (a, b) => a.or(b).cloned(),
                };
                grown |= sets.as_ref() != self.get(*input);
                self.set(*input, sets);
            }
            if !grown || pass == MOST_PASSES {
                break;
            }
            self.mixers.truncate(before);
        }
        // A state without content is the same whatever the tokens: each trip gives its own.
        let is_map = own[..carried.min(own.len())]
            .iter()
            .all(|input| self.get(*input).is_none());
        let turns = rules::turns_round(node);
        let stacked_results = results.iter().skip(carried);
        let of_results = stacked_results.filter_map(|v| Some(self.get(*v)?.all()));
        let of_results = of_results.fold(0, |all, set| all | set);
        let by_trip = united_trips(&trips).filter(|trips| {
            let scanned = trips.iter().fold(0, |all, set| all | set);
            is_map && !turns && of_results & !scanned == 0
        });
        if is_scanned && by_trip.is_none() {
            let mixing = match turns {
                true => Mixing::Other,
                false => Mixing::Recurrence,
            };
            self.report(id, mixing);
        }
        for (i, (out, result)) in node.outputs().iter().zip(results).enumerate() {
            let Some(out) = *out else { continue };
            let sets = self.get(*result).cloned();
            let stacked = |sets: Sets| match &by_trip {
                _ if i < carried => sets,
                Some(trips) => {
                    let axis = rules::stacked_axis(node, i - carried, sets.rank() + 1);
                    Sets::along_axis(trips, axis, sets.rank() + 1)
                }
                None => sets.with_axis(0),
            };
            self.set(out, sets.map(stacked));
        }
    }
}

/// The tokens of each trip, where all scanned values have as many.
fn united_trips(trips: &[(Vec<u64>, usize)]) -> Option<Vec<u64>> {
    let (first, size) = trips.first()?;
    let mut all = first.clone();
    for (sets, other) in trips {
        if other != size || sets.len() != all.len() {
            return None;
        }
        for (set, more) in all.iter_mut().zip(sets) {
            *set |= more;
        }
    }
    Some(all)
}
