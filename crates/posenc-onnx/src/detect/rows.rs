//! Values with a row for each token, in which a position would show besides queries and keys.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Node, NodeId, ValueId};
use rustc_hash::FxHashSet;

use crate::attention::Site;
use crate::attention::reads::weighted;
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
    /// What an operator reads whose result has no such rows, as a mean of all tokens.
    Last,
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

/// The values of these sites, the outputs, and where rows of tokens end.
pub(crate) fn rows(
    graph: &Graph,
    trace: &Trace,
    classes: &Classes,
    tokens: &Tokens,
    sites: &[Site],
) -> Vec<Rows> {
    let is_content = |value: ValueId| classes.of_value(value).has(Class::CONTENT);
    let read = |value: ValueId, what: What| {
        let known = trace.get(value);
        let is_float = known.dtype.is_some_and(|dtype| dtype.is_float());
        let is_computed = graph.producer(value).is_some() && is_content(value);
        let dims = known.dims.as_deref().filter(|_| is_float && is_computed)?;
        let axis = tokens.axis(value, dims)?;
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
    let mut seen = FxHashSet::default();
    for id in graph.order(graph.main()).unwrap_or_default() {
        let node = graph.node(id);
        let mut outputs = node.outputs().iter().flatten().copied();
        let ends = live[id.index()]
            && outputs.all(|out| is_content(out) && !tokens.has_axis(out))
            && node.inputs().iter().flatten().any(|v| tokens.has_axis(*v));
        if ends {
            let inputs = node.inputs().iter().flatten().filter(|v| seen.insert(**v));
            all.extend(inputs.filter_map(|v| read(*v, What::Last)));
        }
    }
    all
}
