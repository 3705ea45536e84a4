//! Convolutions along the sequence that are added to their input.
//!
//! Between the convolution and the addition there may be an activation, a bias, a crop and a
//! norm. A depthwise convolution within a feed-forward or Conformer block has products between
//! and is none. A convolution with strides is added to its input, pooled to as many
//! tokens.
//!
//! An encoding is read by attention: nothing but norms and linear maps is between the addition and
//! the queries or keys of a site. Where another layer is, as the feed-forward layer of a block
//! that mixes neighbours in place of attention, and that again and again, the convolution is a
//! layer of its own and stays.

mod downstream;
mod operators;
mod reader;
mod unread;

use posenc_ir::{Graph, Node, NodeId, Use, ValueId};
use rustc_hash::FxHashSet;

use super::found::Refused;
use super::results::Results;
use super::runs::Runs;
use crate::detect::finding::{Encoding, Finding};
use crate::graph::dataflow::Class;
use crate::graph::operators::{is_copy, is_product, is_rearrangement};
use downstream::Downstream;
use operators::{FEW, groups, is_convolution, kernel, passes, sums, weight};
use posenc_encodings::families::conv::Conv;
use posenc_encodings::kind::Form;
use reader::Readers;

pub(crate) fn find(runs: &mut Runs<'_>, results: &mut Results) {
    let graph = runs.model.graph();
    let is_grouped = |node: &Node| is_convolution(node) && groups(node) > 1;
    if runs.found.attention.is_empty() || !graph.nodes().any(|(_, node)| is_convolution(node)) {
        return;
    }
    let mut downstream = Downstream::of(runs);
    let mut readers = Readers::of(runs);
    let mut layers: Vec<(Shape, NodeId, NodeId)> = vec![];
    let mut shapes: Vec<Shape> = vec![];
    let mut read: FxHashSet<NodeId> = FxHashSet::default();
    let first = (results.findings.len(), results.no_encodings.len());
    let has_grouped = graph.nodes().any(|(_, node)| is_grouped(node));
    let sums = graph.nodes().filter(|(_, n)| has_grouped && sums(n));
    let sums: Vec<NodeId> = sums.map(|n| n.0).collect();
    for id in sums.into_iter().rev() {
        for slot in 0..2 {
            let Some(branch) = Branch::of(runs, id, slot) else {
                continue;
            };
            read.extend(&branch.convolutions);
            let Some(shape) = shape(runs, &branch) else {
                continue;
            };
            let sites = downstream.sites(graph, id);
            let Some(site) = sites.first().copied() else {
                continue;
            };
            if let Some(product) = branch.product {
                results.no_encodings.push(Refused {
                    site,
                    node: branch.convolutions[0],
                    why: format!(
                        "no convolutional encoding: {} is between the convolution and the addition",
                        graph.place(product)
                    ),
                });
                continue;
            }
            let first = branch.convolutions[branch.convolutions.len() - 1];
            if let Err(between) = readers.attends(&sites, id) {
                results.no_encodings.push(Refused {
                    site,
                    node: first,
                    why: format!(
                        "no convolutional encoding: {} is between it and attention",
                        graph.place(between)
                    ),
                });
                layers.push((shape, first, between));
                continue;
            }
            readers.skip(id, 1 - slot);
            shapes.push(shape.clone());
            results.findings.push(Finding {
                encoding: Encoding::Conv(shape.conv),
                sites: sites.iter().copied().collect(),
                entries: vec![Use::new(id, slot)],
                table: None,
                form: match graph.node(first).domain() {
                    "" => Form::Ops,
                    _ => Form::Contrib,
                },
                fit_error: None,
                max_length: None,
                lead: 0,
                evidence: vec![],
            });
        }
    }
    results.findings[first.0..].reverse();
    results.no_encodings[first.1..].reverse();
    unread::find(runs, results, &read, &mut downstream);
    results
        .not_evaluated
        .extend(ambiguous(graph, &layers, &shapes));
}

/// Layers repeat; one alone, or one like an encoding elsewhere, may be an encoding: a sentence each.
/// Of `layers`, the node and what is between it and attention; `shapes` are those of encodings.
fn ambiguous(graph: &Graph, layers: &[(Shape, NodeId, NodeId)], shapes: &[Shape]) -> Vec<String> {
    let kernels = |shape: &Shape| {
        let alike = |(other, ..): &&(Shape, NodeId, NodeId)| other.conv.kernel == shape.conv.kernel;
        layers.iter().filter(alike).count()
    };
    let may_encode =
        |(shape, ..): &&(Shape, NodeId, NodeId)| kernels(shape) < 2 || shapes.contains(shape);
    let sentence = |(_, node, between): &(Shape, NodeId, NodeId)| {
        format!(
            "{}: this convolution is added to its input and may encode position, but {} is between \
             it and attention",
            graph.place(*node),
            graph.place(*between)
        )
    };
    layers
        .iter()
        .rev()
        .filter(may_encode)
        .map(sentence)
        .collect()
}

/// What makes convolutions alike.
#[derive(Clone, Debug)]
struct Shape {
    conv: Conv,
    is_depthwise: bool,
}

impl PartialEq for Shape {
    fn eq(&self, other: &Self) -> bool {
        let groups = self.conv.groups == other.conv.groups;
        self.conv.kernel == other.conv.kernel
            && self.is_depthwise == other.is_depthwise
            && (groups || self.is_depthwise)
    }
}

/// The nodes between an addition and its other operand, from which both are computed.
struct Branch {
    /// From the addition back.
    convolutions: Vec<NodeId>,
    /// A product or an ungrouped convolution between.
    product: Option<NodeId>,
}

impl Branch {
    /// The branch that ends in input `slot` of an addition; `None` where it starts elsewhere, or
    /// contains no grouped convolution.
    fn of(runs: &Runs<'_>, id: NodeId, slot: usize) -> Option<Self> {
        let graph = runs.model.graph();
        let node = graph.node(id);
        let content = |v: &ValueId| runs.found.classes.of_value(*v).has(Class::CONTENT);
        let origins = origins(graph, node.input(1 - slot)?);
        let mut branch = Self {
            convolutions: vec![],
            product: None,
        };
        let mut stack = vec![node.input(slot)?];
        let mut seen = FxHashSet::default();
        while let Some(value) = stack.pop() {
            if origins.contains(&moved(graph, value)) || !content(&value) {
                continue;
            }
            let (at, _) = graph.producer(value)?;
            if !seen.insert(at) {
                continue;
            }
            if seen.len() > FEW {
                return None;
            }
            let node = graph.node(at);
            if is_convolution(node) && groups(node) > 1 {
                branch.convolutions.push(at);
                stack.extend(node.input(0));
                continue;
            }
            if is_convolution(node) || is_product(node) {
                branch.product.get_or_insert(at);
            } else if !passes(node) {
                return None;
            }
            stack.extend(node.inputs().iter().flatten());
        }
        (!branch.convolutions.is_empty()).then_some(branch)
    }
}

/// The value before changes of shape and type, which keep the content, and sums with 0 and products
/// with 1.
fn moved(graph: &Graph, mut value: ValueId) -> ValueId {
    while let Some((id, _)) = graph.producer(value) {
        let node = graph.node(id);
        let moves = is_copy(node.op()) || is_rearrangement(node.op());
        let from = node.input(0).filter(|_| moves);
        match from.or_else(|| unchanged(graph, node)) {
            Some(input) => value = input,
            None => break,
        }
    }
    value
}

/// The operand that a node gives on as it is, the other being one 0 or 1.
fn unchanged(graph: &Graph, node: &Node) -> Option<ValueId> {
    let (neutral, either) = match (node.domain(), node.op()) {
        ("", "Add") => (0.0, true),
        ("", "Mul") => (1.0, true),
        ("", "Sub") => (0.0, false),
        ("", "Div") => (1.0, false),
        _ => return None,
    };
    let is_neutral = |v: ValueId| {
        let stored = graph.stored(v).filter(|s| s.elements() == Some(1));
        let tensor = stored.and_then(|_| graph.constant(v));
        tensor.is_some_and(|t| t.get_f64(0) == Some(neutral))
    };
    let (first, second) = (node.input(0)?, node.input(1)?);
    if is_neutral(second) {
        return Some(first);
    }
    (either && is_neutral(first)).then_some(second)
}

/// Pools and crops between a value and what it was made of.
const STEPS: usize = 4;

/// What a convolution may start from to be added to this value: the value itself, and what it is
/// pooled from or cut out of, nearest first.
fn origins(graph: &Graph, value: ValueId) -> Vec<ValueId> {
    let mut origins = vec![moved(graph, value)];
    for _ in 0..STEPS {
        let made = origins.last().and_then(|v| graph.producer(*v));
        let Some(node) = made.map(|(id, _)| graph.node(id)) else {
            break;
        };
        let fewer = ["AveragePool", "MaxPool", "Slice"];
        let Some(input) = node.input(0).filter(|_| fewer.iter().any(|op| node.is(op))) else {
            break;
        };
        origins.push(moved(graph, input));
    }
    origins
}

/// The convolution of a branch, the first that the input meets: of equal channels, and wider than
/// one token.
fn shape(runs: &Runs<'_>, branch: &Branch) -> Option<Shape> {
    let node = runs.model.graph().node(*branch.convolutions.last()?);
    let weight = weight(runs, node)?;
    let [channels, members, ..] = weight else {
        return None;
    };
    let kernel = kernel(node, weight);
    let groups = groups(node);
    let equal = matches!(node.op(), "NhwcConv" | "NhwcFusedConv") || members * groups == *channels;
    (equal && kernel.iter().any(|n| *n > 1)).then(|| Shape {
        conv: Conv {
            kernel: kernel.to_vec(),
            groups,
        },
        is_depthwise: groups == *channels,
    })
}
