//! Values with a row for each token, in which a position would show besides queries and keys.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Node, NodeId, ValueId};
use rustc_hash::FxHashSet;

use crate::attention::Site;
use crate::attention::reads::{reads, weighted};
use crate::attention::stream::MixedTokens;
use crate::graph::dataflow::{Class, Classes, live};
use crate::graph::lane::pads::pads;
use crate::graph::mixing::{Mixer, Mixing, Tokens};
use crate::graph::operators::is_product;

/// A value with a row for each token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) value: ValueId,
    /// The axis of tokens.
    pub(crate) axis: usize,
    pub(crate) what: What,
}

/// What has a row for each token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The values of an attention site, by its index.
    Values(usize),
    /// An output of the model.
    Output,
    /// What an operator reads that mixes tokens, or whose result has no such rows: a recurrence, a
    /// convolution, a mean of all tokens.
    Last,
}

/// A node that mixes tokens, and the axes along which those that it reads lie.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    pub(crate) node: NodeId,
    /// The first input whose tokens differ.
    pub(crate) value: ValueId,
    pub(crate) axes: Vec<usize>,
}

/// What the values of a site are weighted to.
#[derive(Clone, Debug)]
pub(crate) struct Attended {
    /// The index of the site.
    pub(crate) site: usize,
    pub(crate) value: ValueId,
    /// The axis of tokens.
    pub(crate) axis: usize,
}

/// What mixes tokens and is no attention, with the tokens that it reads.
pub(crate) fn spread(
    (graph, classes): (&Graph, &Classes),
    (tokens, mixers): (&Tokens, &[Mixer]),
    (trace, filled): (&Trace, &FxHashSet<NodeId>),
) -> Vec<Spread> {
    let order = graph.order(graph.main()).unwrap_or_default();
    let mixers: FxHashSet<NodeId> = mixers.iter().map(|m| m.node).collect();
    let mixes = order
        .into_iter()
        .filter(|id| mixers.contains(id) || filled.contains(id));
    let read = |node: NodeId| {
        let mut content = classes.content(graph.node(node));
        content.find_map(|value| {
            let rank = trace.get(value).dims.as_ref()?.len();
            let axes: Vec<usize> = (0..rank)
                .filter(|axis| tokens.differ_along(value, *axis))
                .collect();
            (!axes.is_empty()).then_some(Spread { node, value, axes })
        })
    };
    mixes.filter_map(read).collect()
}

/// What the values of these sites are weighted to, where the tokens of each query differ.
pub(crate) fn attended(
    (graph, trace, classes): (&Graph, &Trace, &Classes),
    tokens: &Tokens,
    sites: &[Site],
) -> Vec<Attended> {
    let own = sites.iter().filter(|site| site.scope == graph.main());
    let of = |site: &Site| {
        let known = |node: NodeId| {
            let value = graph.node(node).output(0)?;
            let axis = tokens.axis_of_inputs(value, trace.get(value).dims.as_deref()?)?;
            Some(Attended {
                site: site.index,
                value,
                axis,
            })
        };
        let all = weighing(graph, classes, site).into_iter().map(known);
        all.collect::<Option<Vec<_>>>()
    };
    own.filter_map(of).flatten().collect()
}

/// The nodes that weight the values of a site.
fn weighing(graph: &Graph, classes: &Classes, site: &Site) -> Vec<NodeId> {
    if site.product.is_none() {
        return vec![site.node];
    }
    let values = weighted(graph, classes, site);
    let known = reads(graph, classes, std::slice::from_ref(site));
    let slots = known.keys_and_values.into_iter();
    let weighs = |(node, slot): &(NodeId, usize)| {
        let input = graph.node(*node).input(*slot);
        input.is_some_and(|v| values.contains(&v))
    };
    let mut nodes: Vec<NodeId> = slots.filter(weighs).map(|(node, _)| node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// Every `Pad` that adds to a sequence of tokens, or cuts it; also one of which that is not known.
pub(crate) fn filled(graph: &Graph, trace: &Trace, tokens: &Tokens) -> FxHashSet<NodeId> {
    let fills = |node: &Node| {
        let input = node.input(0).filter(|_| node.is("Pad"));
        input.is_some_and(|input| {
            let rank = trace.get(input).dims.as_ref().map(Vec::len);
            let Some(pads) = rank.and_then(|rank| pads(node, trace, rank)) else {
                return true;
            };
            let mut axes = (0..pads.len()).filter(|axis| pads[*axis] != [0, 0]);
            axes.any(|axis| tokens.differ_along(input, axis))
        })
    };
    let all = graph.nodes().filter(|(_, node)| fills(node));
    all.map(|(id, _)| id).collect()
}

/// What operators read that mix tokens and are no attention.
pub(crate) fn mixed(
    (graph, trace, classes): (&Graph, &Trace, &Classes),
    tokens: &Tokens,
    mixers: &[Mixer],
) -> Vec<MixedTokens> {
    let others = mixers.iter().filter(|m| m.mixing == Mixing::Other);
    let read = others.flat_map(|mixer| {
        let node = graph.node(mixer.node);
        let content = || classes.content(node);
        // Queries and keys are projected; other mixers read the stream itself.
        let is_projected = is_product(node) && content().count() > 1;
        content().filter_map(move |value| {
            let dims = trace.get(value).dims.as_deref()?;
            let is_of_tokens = |axis: &usize| {
                let along = tokens.along(value, *axis, dims[*axis]);
                along.is_some_and(|along| along.is_of_each() && along.is_rising())
            };
            let mut axes = (0..dims.len()).filter(is_of_tokens);
            let axis = axes.next().filter(|_| axes.next().is_none())?;
            Some(MixedTokens {
                value,
                axis,
                is_projected,
            })
        })
    });
    read.collect()
}

/// The values of these sites, the outputs, what mixers read, and where rows of tokens end.
pub(crate) fn rows(
    (graph, trace, classes): (&Graph, &Trace, &Classes),
    (tokens, mixers): (&Tokens, &[Mixer]),
    sites: &[Site],
) -> Vec<Rows> {
    let is_content = |value: ValueId| classes.of_value(value).has(Class::CONTENT);
    let read = |value: ValueId, what: What| {
        let known = trace.get(value);
        let is_float = known.dtype.is_some_and(|dtype| dtype.is_float());
        let is_computed = graph.producer(value).is_some() && is_content(value);
        let dims = known.dims.as_deref().filter(|_| is_float && is_computed)?;
        let axis = tokens.axis_of_inputs(value, dims)?;
        Some(Rows { value, axis, what })
    };
    let mut all = vec![];
    for site in sites.iter().filter(|site| site.scope == graph.main()) {
        let values = weighted(graph, classes, site).into_iter();
        all.extend(values.filter_map(|v| read(v, What::Values(site.index))));
    }
    let outputs = graph.scope(graph.main()).outputs();
    all.extend(outputs.iter().filter_map(|v| read(*v, What::Output)));
    let live = live(graph);
    let mixers: FxHashSet<NodeId> = mixers.iter().map(|mixer| mixer.node).collect();
    let mut seen = FxHashSet::default();
    for id in graph.order(graph.main()).unwrap_or_default() {
        let node = graph.node(id);
        let mut outputs = node.outputs().iter().flatten().copied();
        let mixes = mixers.contains(&id);
        let ends = outputs.all(|out| is_content(out) && (mixes || !tokens.has_axis(out)))
            && node.inputs().iter().flatten().any(|v| tokens.has_axis(*v));
        if ends && live[id.index()] {
            let inputs = node.inputs().iter().flatten().filter(|v| seen.insert(**v));
            all.extend(inputs.filter_map(|v| read(*v, What::Last)));
        }
    }
    all
}
