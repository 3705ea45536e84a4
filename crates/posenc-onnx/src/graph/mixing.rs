//! Which operators mix tokens, whatever they are part of.
//!
//! Every element of a value depends on a set of tokens. The sets follow from the operators and the
//! dimensions of a trial run, without weights: a product unites the sets along the axis that it
//! contracts, a reshape moves them. An operator mixes tokens where a union is none of its parts.
//!
//! Attention that was recognized is let through: its products read keys and values as if they
//! depended on no token, so that what they give belongs to the token of the query. What is left
//! was not read as attention.

mod control;
mod counted;
mod rules;
mod selected;
mod sets;
#[cfg(test)]
mod tests;
mod tokens;
mod weighted;

use std::cell::OnceCell;

use posenc_ir::eval::Trace;
use posenc_ir::{Dim, Graph, Model, Node, NodeId, ScopeId, Use, ValueId};
use rustc_hash::FxHashSet;

use crate::graph::dataflow::{Class, Classes, live};
use crate::graph::operators::{is_elementwise, is_layout, is_projection};
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

/// Whether one of the first nodes behind an input is such a one, through nodes that pass it on.
fn reaches(
    graph: &Graph,
    input: ValueId,
    is_end: impl Fn(&Use, &Node) -> bool,
    passes: impl Fn(&Node) -> bool,
) -> bool {
    let mut values = vec![input];
    let mut seen = FxHashSet::default();
    while let Some(value) = values.pop() {
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            if is_end(at, node) {
                return true;
            }
            let through = !is_projection(node) && passes(node);
            if through && seen.len() < NEAR && seen.insert(at.node) {
                values.extend(node.outputs().iter().flatten());
            }
        }
    }
    false
}

/// Whether a convolution is the first product that an input enters.
fn is_convolved(graph: &Graph, input: ValueId) -> bool {
    let convolves = |_: &Use, node: &Node| node.op().contains("Conv");
    // Behind a transposition the axes are others.
    reaches(graph, input, convolves, |node| !node.is("Transpose"))
}

/// Whether a convolution reads an input of sequences of rows as images of one channel, as that of patches of a
/// spectrogram.
pub(crate) fn is_image(graph: &Graph, port: &Port) -> bool {
    let over_two_axes = |_: &Use, node: &Node| {
        let kernel = node.input(1).filter(|_| node.is("Conv"));
        let kernel = kernel.and_then(|kernel| graph.constant(kernel));
        kernel.is_some_and(|kernel| kernel.dims().len() == 4)
    };
    let passes = |node: &Node| is_elementwise(node.op()) || is_layout(node.op());
    port.role == Role::Content
        && port.dims.len() == 3
        && reaches(graph, port.value, over_two_axes, passes)
}

/// Whether an input has samples of sound, of which a convolution makes frames, or pixels, which a change
/// of shape puts into patches.
fn has_parts(graph: &Graph, port: &Port) -> bool {
    let has_samples = matches!(port.dims[..], [_, Dim::Known(2..)]);
    has_samples && (is_convolved(graph, port.value) || is_cut(graph, port.value))
}

/// Whether a `Reshape` may give an input of two axes more than two that are longer than 1.
fn is_cut(graph: &Graph, input: ValueId) -> bool {
    let cuts = |at: &Use, node: &Node| {
        let shape = node
            .input(1)
            .filter(|_| node.is("Reshape") && at.slot() == 0);
        shape.is_some_and(|shape| {
            let sizes = graph.constant(shape).and_then(|shape| shape.to_i64s());
            sizes.is_none_or(|sizes| sizes.iter().filter(|size| **size != 1).count() > 2)
        })
    };
    let passes = |node: &Node| is_elementwise(node.op()) || is_layout(node.op());
    reaches(graph, input, cuts, passes)
}

/// The tokens of an input.
fn of_input(
    (graph, ports): (&Graph, &Ports),
    port: &Port,
    dims: &[usize],
    lengths: Lengths,
) -> Option<Sets> {
    let axes = token_axes((graph, ports), port, dims, lengths)?;
    Sets::numbered(dims, &axes, port.role == Role::Past)
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
        Role::Positions | Role::Padding | Role::Counts | Role::CacheFlag | Role::Table => {
            return None;
        }
        _ if ports.is_setting(port) && !has_parts(graph, port) => return None,
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
        // Features have a size that is known.
        Role::Content if last == 2 && is_open(1) != is_open(2) => {
            vec![if is_open(1) { 1 } else { 2 }]
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
}
