//! Where numbers that change from token to token meet content, token by token.

use ndarray::{ArrayD, Axis};
use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Node, NodeId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::attention::Site;
use crate::attention::reads::reads;
use crate::graph::dataflow::{Class, Classes, live};
use crate::graph::einsum::Equation;
use crate::graph::mixing::Tokens;
use crate::graph::operators::is_elementwise;

/// Numbers of one row are equal up to this share of the largest.
pub(super) const ROUNDING: f64 = 1e-6;

/// Numbers that are no content and change from token to token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Met {
    /// Where they meet content.
    pub(crate) node: NodeId,
    pub(crate) numbers: ValueId,
    /// By how much they change; `None` where they are not known.
    pub(crate) change: Option<f64>,
}

/// Where content is met token by token: everywhere but beside scores, where masks and biases are.
pub(super) struct Meetings<'a> {
    pub(super) graph: &'a Graph,
    pub(super) trace: &'a Trace,
    pub(super) classes: &'a Classes,
    tokens: &'a Tokens,
    /// The nodes that lead to an output and compute no scores.
    pub(super) nodes: Vec<NodeId>,
}

impl<'a> Meetings<'a> {
    pub(super) fn of(
        (graph, trace, classes): (&'a Graph, &'a Trace, &'a Classes),
        tokens: &'a Tokens,
        sites: &[Site],
    ) -> Self {
        let of_scores = of_scores(graph, classes, sites);
        let live = live(graph);
        let nodes = graph.nodes().map(|(id, _)| id);
        let nodes = nodes.filter(|id| live[id.index()] && !of_scores.contains(id));
        Self {
            nodes: nodes.collect(),
            graph,
            trace,
            classes,
            tokens,
        }
    }

    pub(super) fn is_content(&self, value: ValueId) -> bool {
        self.classes.of_value(value).has(Class::CONTENT)
    }

    /// The axes of tokens that the content of a node has and that others are met along, counted from the end, with
    /// their sizes.
    pub(super) fn axes(&self, node: &Node) -> Vec<(usize, usize)> {
        let Some(trailing) = trailing(node) else {
            return vec![];
        };
        let inputs = node.inputs().iter().flatten().copied();
        let axes = inputs.filter(|v| self.is_content(*v)).filter_map(|v| {
            let dims = self.trace.get(v).dims.as_ref()?;
            let axis = self.tokens.only_axis(v, dims.len())?;
            Some((dims.len() - axis, dims[axis]))
        });
        axes.filter(|(from_end, _)| *from_end > trailing).collect()
    }
}

/// All numbers that change from token to token.
pub(super) fn met(meetings: &Meetings<'_>) -> Vec<Met> {
    let graph = meetings.graph;
    let mut changes = Changes::of(meetings.trace, meetings.classes);
    let at = |id: &NodeId| {
        let node = graph.node(*id);
        if node.is("Einsum") {
            return in_einsum((graph, &mut changes), meetings.tokens, *id);
        }
        let axes = meetings.axes(node);
        let others = node.inputs().iter().flatten().copied();
        let mut others = others.filter(|v| !meetings.is_content(*v));
        others.find_map(|numbers| {
            let change = axes.iter().find_map(|at| changes.along(numbers, *at))?;
            Some(Met {
                node: *id,
                numbers,
                change: change.is_finite().then_some(change),
            })
        })
    };
    meetings.nodes.iter().filter_map(at).collect()
}

/// Numbers that an `Einsum` multiplies with content token by token.
fn in_einsum(
    (graph, changes): (&Graph, &mut Changes<'_>),
    tokens: &Tokens,
    id: NodeId,
) -> Option<Met> {
    let Changes { trace, classes, .. } = *changes;
    let node = graph.node(id);
    let equation = Equation::of(graph, trace, id)?;
    let operands: Vec<(ValueId, &Vec<char>)> = (node.inputs().iter().copied())
        .zip(&equation.operands)
        .map(|(v, letters)| Some((v?, letters)))
        .collect::<Option<_>>()?;
    let is_content = |v: ValueId| classes.of_value(v).has(Class::CONTENT);
    let (content, others): (Vec<_>, Vec<_>) = operands.iter().partition(|(v, _)| is_content(*v));
    let letters = content.iter().filter_map(|(v, letters)| {
        let axis = tokens.only_axis(*v, letters.len())?;
        let letter = *letters.get(axis)?;
        let size = *trace.get(*v).dims.as_ref()?.get(axis)?;
        // A sum over tokens mixes them.
        equation.result.contains(&letter).then_some((letter, size))
    });
    let letters: Vec<(char, usize)> = letters.collect();
    letters.into_iter().find_map(|(letter, size)| {
        others.iter().find_map(|(numbers, own)| {
            let axis = own.iter().position(|other| *other == letter)?;
            let change = changes.along(*numbers, (own.len() - axis, size))?;
            Some(Met {
                node: id,
                numbers: *numbers,
                change: change.is_finite().then_some(change),
            })
        })
    })
}

/// How many of the last axes an operator does not broadcast; `None` for one that meets no elements.
fn trailing(node: &Node) -> Option<usize> {
    match node.op() {
        _ if !node.domain().is_empty() => None,
        "MatMul" => Some(2),
        "PRelu" | "Mod" => Some(0),
        op => is_elementwise(op).then_some(0),
    }
}

/// By how much numbers change, each computed once: many layers read the same.
struct Changes<'a> {
    trace: &'a Trace,
    classes: &'a Classes,
    known: FxHashMap<(ValueId, usize, usize), Option<f64>>,
}

impl<'a> Changes<'a> {
    fn of(trace: &'a Trace, classes: &'a Classes) -> Self {
        Self {
            trace,
            classes,
            known: FxHashMap::default(),
        }
    }

    /// Along an axis of this size, counted from the end: infinitely where that is not known; `None` where
    /// they do not change.
    fn along(&mut self, numbers: ValueId, (from_end, size): (usize, usize)) -> Option<f64> {
        let Self {
            trace,
            classes,
            known,
        } = self;
        let known = known.entry((numbers, from_end, size));
        *known.or_insert_with(|| change((*trace, *classes), numbers, (from_end, size)))
    }
}

/// [`Changes::along`], not computed before.
fn change(
    (trace, classes): (&Trace, &Classes),
    numbers: ValueId,
    (from_end, size): (usize, usize),
) -> Option<f64> {
    let known = trace.get(numbers);
    let dims = known.dims.as_ref()?;
    let axis = dims.len().checked_sub(from_end)?;
    if dims[axis] != size || size < 2 {
        return None;
    }
    match known.to_f64() {
        Some(numbers) => spread(&numbers, axis),
        None => (classes.of_value(numbers) != Class::PADDING).then_some(f64::INFINITY),
    }
}

/// The largest difference between rows along an axis, where it is more than roundings.
pub(super) fn spread(numbers: &ArrayD<f64>, axis: usize) -> Option<f64> {
    let first = numbers.index_axis(Axis(axis), 0);
    let largest = numbers.iter().fold(0.0, |a: f64, v| a.max(v.abs()));
    let differences = numbers.axis_iter(Axis(axis)).flat_map(|row| {
        let pairs = row.into_iter().zip(&first);
        // Equal infinities are no difference.
        let of = |(a, b): (&f64, &f64)| if a == b { 0.0 } else { (a - b).abs() };
        pairs.map(of).collect::<Vec<_>>()
    });
    let spread = differences.fold(0.0, f64::max);
    (spread > ROUNDING * largest).then_some(spread)
}

/// The nodes between the product of queries and keys and that with the values.
pub(super) fn of_scores(graph: &Graph, classes: &Classes, sites: &[Site]) -> FxHashSet<NodeId> {
    let known = reads(graph, classes, sites);
    let products = known.keys_and_values.iter().map(|(node, _)| *node);
    let ends: FxHashSet<NodeId> = products.collect();
    let mut scores = FxHashSet::default();
    let mut stack: Vec<ValueId> = sites.iter().filter_map(|site| site.product).collect();
    while let Some(value) = stack.pop() {
        for at in graph.uses(value) {
            if !ends.contains(&at.node) && scores.insert(at.node) {
                stack.extend(graph.node(at.node).outputs().iter().flatten());
            }
        }
    }
    scores
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn rows_that_differ_by_more_than_roundings_change() {
        let hidden = f64::NEG_INFINITY;
        for (numbers, change) in [
            (array![[1.0, 2.0], [1.0, 2.0]], None),
            (array![[1.0, 2.0], [1.0, 2.0 + 1e-7]], None),
            (array![[hidden, 2.0], [hidden, 2.0]], None),
            (array![[1.0, 2.0], [1.0, 2.5]], Some(0.5)),
        ] {
            assert_eq!(spread(&numbers.into_dyn(), 0), change);
        }
    }
}
