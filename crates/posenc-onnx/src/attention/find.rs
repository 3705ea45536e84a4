//! From each softmax over keys back to queries and keys, and on to values.
//!
//! A softmax is a site only where its input is a product of two operands that both carry content
//! and its output weights a third: routers, pooling and classifier heads are not.

use std::cell::RefCell;

use posenc_encodings::kind::Form;
use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Model, NodeId, ValueId};

use super::describe::describe;
use super::folded::Folded;
use super::operands::{Product, operands};
use super::planes::Planes;
use super::site::{Mask, Site, StackLayer};
use super::{fused, mask, stacks, walk};
use crate::graph::dataflow::{Class, Classes};
use crate::graph::lane::{Lane, back, wrap};
use crate::graph::operators::{is_elementwise, is_product, is_rearrangement};
use crate::graph::ports::Ports;

/// Every attention site of the graph, in order of computation. Of the branches of an `If` that contain
/// attention, `branch` selects one, the one with the most sites being 0.
pub(crate) fn sites(
    model: &Model,
    classes: &Classes,
    trace: &Trace,
    ports: &Ports,
    branch: usize,
) -> Vec<Site> {
    let planes = RefCell::new(Planes::default());
    let find = |id: NodeId| -> Option<Site> {
        let graph = model.graph();
        let node = graph.node(id);
        let mut site = match (node.domain(), node.op()) {
            ("", "Softmax") => spelled_out(model, classes, trace, id),
            ("", "Div") => written_out(graph, classes, trace, id),
            _ => fused::fused(graph, trace, id),
        }?;
        describe(model, classes, trace, ports, &mut site);
        site.bias = planes.borrow_mut().of(model, classes, trace, &site);
        site.mask = mask::read(graph, classes, &site, site.bias.as_deref());
        Some(site)
    };
    let mut sites = walk::scope(model.graph(), classes, trace, branch, &find);
    number(model.graph(), &mut sites);
    sites
}

/// Gives each site its index, its stack and its layer.
pub(crate) fn number(graph: &Graph, sites: &mut [Site]) {
    for (index, site) in sites.iter_mut().enumerate() {
        site.index = index;
    }
    stacks::assign(graph, sites);
}

/// A softmax with a product of content before it and one after it.
fn spelled_out(model: &Model, classes: &Classes, trace: &Trace, id: NodeId) -> Option<Site> {
    let graph = model.graph();
    let node = graph.node(id);
    let scores = node.input(0)?;
    let rank = trace.get(scores).dims.as_ref()?.len();
    // Before opset 13 all axes from the one named were taken together.
    let old = model.opset() < 13;
    let default = if old { 1 } else { -1 };
    let axis = wrap(node.int("axis").ok()?.unwrap_or(default), rank)?;
    if old && axis + 1 != rank {
        return None;
    }
    weighted(graph, classes, trace, id, scores, axis)
}

/// A softmax in parts: `Exp` over the sum of it, as exporters of other frameworks write it.
fn written_out(graph: &Graph, classes: &Classes, trace: &Trace, id: NodeId) -> Option<Site> {
    let node = graph.node(id);
    let (above, below) = (node.input(0)?, node.input(1)?);
    let exp = graph.node(graph.producer(above)?.0);
    let (sum, _) = graph.producer(below)?;
    let sum = graph.node(sum);
    if !exp.is("Exp") || !sum.is("ReduceSum") || sum.input(0) != Some(above) {
        return None;
    }
    let scores = exp.input(0)?;
    let rank = trace.get(scores).dims.as_ref()?.len();
    let axes: Vec<i64> = match sum.input(1) {
        Some(v) => trace.get(v).to_i64()?.iter().copied().collect(),
        None => sum.ints("axes").ok()??.to_vec(),
    };
    let [axis] = axes[..] else { return None };
    weighted(graph, classes, trace, id, scores, wrap(axis, rank)?)
}

/// The site whose weights node `id` computes from `scores` along `axis`.
fn weighted(
    graph: &Graph,
    classes: &Classes,
    trace: &Trace,
    id: NodeId,
    scores: ValueId,
    axis: usize,
) -> Option<Site> {
    let node = graph.node(id);
    let (product, axes) = product(graph, classes, trace, scores, axis)?;
    weighs_content(graph, classes, node.output(0)?)?;
    let Product {
        query,
        key,
        queries,
    } = operands(graph, trace, product, axes[axis]?)?;
    let value = graph.node(product).output(0)?;
    let mut rows = axes.iter().position(|a| *a == Some(queries));
    let mut query = query;
    let folded = Folded {
        graph,
        classes,
        trace,
        query,
        product: (value, queries),
        scores,
    };
    let unfolded = rows.is_none().then(|| folded.unfold()).flatten();
    if let Some((before, row)) = unfolded {
        (query, rows) = (before, Some(row));
    }
    let dims = trace.get(query.value).dims.as_ref()?;
    Some(Site {
        node: id,
        scope: node.scope(),
        name: String::new(),
        index: 0,
        place: StackLayer::default(),
        query,
        key,
        product: Some(value),
        scores: Some(scores),
        plane: rows.map(|rows| [rows, axis]),
        heads: None,
        kv_heads: None,
        head_dim: query.lane.width(dims),
        mask: Mask::default(),
        cross: false,
        past: false,
        buffer: None,
        folded: unfolded.is_some(),
        form: Form::Ops,
        bias: None,
    })
}

/// Walks back from the scores through scales and masks to the product of two content operands,
/// with the axis of the product that each axis of the scores is.
fn product(
    graph: &Graph,
    classes: &Classes,
    trace: &Trace,
    scores: ValueId,
    axis: usize,
) -> Option<(NodeId, Vec<Option<usize>>)> {
    let content = |v: ValueId| classes.of_value(v).has(Class::CONTENT);
    let rank = trace.get(scores).dims.as_ref()?.len();
    let mut stack = vec![(scores, (0..rank).map(Some).collect::<Vec<_>>())];
    let mut seen = rustc_hash::FxHashSet::default();
    while let Some((value, axes)) = stack.pop() {
        if !seen.insert(value) {
            continue;
        }
        let Some((id, output)) = graph.producer(value) else {
            continue;
        };
        let node = graph.node(id);
        let inputs: Vec<(usize, ValueId)> = (0..node.inputs().len())
            .filter_map(|i| Some((i, node.input(i)?)))
            .filter(|(_, v)| content(*v))
            .collect();
        if is_product(node) {
            let whole = inputs.len() >= 2
                || axes[axis].is_some_and(|keys| learned_queries(graph, classes, trace, id, keys));
            if whole {
                return Some((id, axes));
            }
            continue;
        }
        let through = node.domain().is_empty()
            && (is_elementwise(node.op())
                || is_rearrangement(node.op())
                || matches!(node.op(), "Expand" | "Slice" | "Concat" | "Pad"));
        // The first operand is the scores themselves in the forms that exporters write.
        for (slot, v) in inputs.into_iter().rev().filter(|_| through) {
            let before = |a: Option<usize>| {
                let lane = Lane::of_sequence(a?);
                Some(back(graph, trace, id, output, slot, lane)?.sequence)
            };
            let axes: Vec<Option<usize>> = axes.iter().map(|a| before(*a)).collect();
            if axes[axis].is_some() {
                stack.push((v, axes));
            }
        }
    }
    None
}

/// Whether the product, whose axis `keys` the softmax takes, is of several learned queries in heads, the
/// same for every input, with keys of content: latents that read a sequence, queries of objects.
/// One query is pooling; a matrix without heads is a projection.
fn learned_queries(
    graph: &Graph,
    classes: &Classes,
    trace: &Trace,
    product: NodeId,
    keys: usize,
) -> bool {
    let Some(Product { query, key, .. }) = operands(graph, trace, product, keys) else {
        return false;
    };
    let Some(dims) = trace.get(query.value).dims.as_ref() else {
        return false;
    };
    let heads = |axis: usize| axis != query.lane.sequence && Some(axis) != query.lane.feature;
    let content = |v: ValueId| classes.of_value(v).has(Class::CONTENT);
    content(key.value)
        && !content(query.value)
        && dims[query.lane.sequence] > 1
        && (0..dims.len()).any(|axis| heads(axis) && dims[axis] > 1)
}

/// Whether the weights are multiplied with content.
fn weighs_content(graph: &Graph, classes: &Classes, weights: ValueId) -> Option<()> {
    let mut stack = vec![weights];
    let mut seen = rustc_hash::FxHashSet::default();
    while let Some(value) = stack.pop() {
        if !seen.insert(value) {
            continue;
        }
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            if is_product(node) {
                let other = node.inputs().iter().flatten().filter(|v| **v != value);
                if other
                    .clone()
                    .any(|v| classes.of_value(*v).has(Class::CONTENT))
                {
                    return Some(());
                }
            } else if node.domain().is_empty()
                && (is_elementwise(node.op())
                    || is_rearrangement(node.op())
                    || node.op() == "Slice")
            {
                stack.extend(node.outputs().iter().flatten());
            }
        }
    }
    None
}
