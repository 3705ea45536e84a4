//! Finding attention: from each softmax over keys back to queries and keys, and on to values.
//!
//! A softmax is a site only where its input is a product of two operands that both carry content
//! and its output weighs a third: routers, pooling and classifier heads are not.

pub mod frontier;
mod fused;
pub mod keys;
pub mod mask;
mod operands;
pub(crate) mod planes;
pub mod scale;
pub mod scores;
mod stacks;
pub mod stream;
mod walk;

use operands::{Product, operands};
pub use stacks::Place;

use std::cell::RefCell;
use std::sync::Arc;

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Model, NodeId, ScopeId, ValueId};

use crate::attention::scores::Plane;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::lane::{Lane, is_elementwise, wrap};
use crate::graph::ports::{Ports, Role};
use planes::Planes;
use posenc_encodings::kind::Form;

/// One attention: its operands and what is known of its shape.
#[derive(Clone, Debug)]
pub struct Site {
    /// The softmax, or the fused operator.
    pub node: NodeId,
    /// Where it stands.
    pub scope: ScopeId,
    /// A name for people.
    pub name: String,
    /// Place among the sites, in order of computation.
    pub layer: usize,
    /// The stack, in a model of two, and the layer of it.
    pub place: Place,
    /// Queries as they enter the product.
    pub query: Operand,
    /// Keys as they enter the product.
    pub key: Operand,
    /// The product of queries and keys; `None` for a fused operator.
    pub product: Option<ValueId>,
    /// What the softmax is taken of.
    pub scores: Option<ValueId>,
    /// The axes of queries and keys in `scores`, where they can be followed from the product.
    pub plane: Option<[usize; 2]>,
    /// Number of query heads.
    pub heads: Option<usize>,
    /// Number of key heads.
    pub kv_heads: Option<usize>,
    /// Features of a head.
    pub head_dim: Option<usize>,
    /// Masks and kind.
    pub mask: Mask,
    /// Whether keys come from another sequence.
    pub cross: bool,
    /// Whether earlier keys join.
    pub past: bool,
    /// Spelled out in plain operators, or one of a fused domain.
    pub form: Form,
    /// What the softmax sees in the trial run where queries and keys are zero, where that could
    /// be computed; alike sites share it.
    pub(crate) bias: Option<Arc<Plane>>,
}

/// Queries or keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// The value.
    pub value: ValueId,
    /// Where its tokens and features stand.
    pub lane: Lane,
}

/// Which keys a query may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Mask {
    /// Later keys are hidden; `None` where the mask could not be read.
    pub causal: Option<bool>,
    /// Keys this far back and farther are hidden.
    pub window: Option<usize>,
    /// The attention mask plays a part.
    pub padding: bool,
}

/// Every attention of the graph, in order of computation; of the branches of an `If` that hold
/// some, those of the one that comes at this place by how many it holds.
pub fn sites(
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
        site.mask = crate::attention::mask::read(graph, classes, &site, site.bias.as_deref());
        Some(site)
    };
    let mut sites = walk::scope(model.graph(), trace, branch, &find);
    for (layer, site) in sites.iter_mut().enumerate() {
        site.layer = layer;
    }
    stacks::assign(model.graph(), &mut sites);
    sites
}

/// A softmax with a product of content before it and one behind it.
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

/// The site whose weights `id` computes from `scores` along `axis`.
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
    let rows = axes.iter().position(|a| *a == Some(queries));
    let dims = trace.get(query.value).dims.as_ref()?;
    Some(Site {
        node: id,
        scope: node.scope(),
        name: String::new(),
        layer: 0,
        place: Place::default(),
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
        form: Form::Ops,
        bias: None,
    })
}

/// Walks back from the scores through scales and masks to the product of two content operands;
/// also tells where each axis of the scores stands in it.
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
        if is_product(node.domain(), node.op()) {
            if inputs.len() >= 2 {
                return Some((id, axes));
            }
            continue;
        }
        let through = node.domain().is_empty()
            && (is_elementwise(node.op())
                || matches!(
                    node.op(),
                    "Reshape"
                        | "Transpose"
                        | "Squeeze"
                        | "Unsqueeze"
                        | "Expand"
                        | "Slice"
                        | "Concat"
                        | "Pad"
                ));
        // The first operand is the scores themselves in the forms that exporters write.
        for (slot, v) in inputs.into_iter().rev().filter(|_| through) {
            let before = |a: Option<usize>| {
                let lane = Lane::of_sequence(a?);
                Some(crate::graph::lane::back(graph, trace, id, output, slot, lane)?.sequence)
            };
            let axes: Vec<Option<usize>> = axes.iter().map(|a| before(*a)).collect();
            if axes[axis].is_some() {
                stack.push((v, axes));
            }
        }
    }
    None
}

pub(crate) fn is_product(domain: &str, op: &str) -> bool {
    match domain {
        "" => matches!(op, "MatMul" | "Gemm" | "Einsum" | "QLinearMatMul"),
        "com.microsoft" => op == "FusedMatMul",
        _ => false,
    }
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
            if is_product(node.domain(), node.op()) {
                let other = node.inputs().iter().flatten().filter(|v| **v != value);
                if other
                    .clone()
                    .any(|v| classes.of_value(*v).has(Class::CONTENT))
                {
                    return Some(());
                }
            } else if node.domain().is_empty()
                && (is_elementwise(node.op())
                    || matches!(
                        node.op(),
                        "Reshape" | "Transpose" | "Squeeze" | "Unsqueeze" | "Slice"
                    ))
            {
                stack.extend(node.outputs().iter().flatten());
            }
        }
    }
    None
}

/// Heads, cache and kind.
fn describe(model: &Model, classes: &Classes, trace: &Trace, ports: &Ports, site: &mut Site) {
    let graph = model.graph();
    site.name = name(graph, site.node);
    let dims = |v: ValueId| trace.get(v).dims.clone();
    let length = |o: &Operand| dims(o.value).map(|d| d[o.lane.sequence]);
    let keys = crate::attention::keys::trace_back(graph, classes, trace, site);
    site.past |= keys.past;
    let (queries, new) = (length(&site.query), keys.length.or(length(&site.key)));
    let (from, to) = (
        classes.of_value(site.query.value),
        classes.of_value(site.key.value),
    );
    let other_length = matches!((queries, new), (Some(q), Some(k)) if q != k);
    site.cross = !from.shares_inputs(to) || other_length && !one_stream(graph, classes, site);
    let mut sequences = batch(trace, ports).map(|n| n.max(1));
    if site.heads.is_none()
        && let (Some(d), Some(batch)) = (dims(site.query.value), sequences)
        && let Some(all) = per_token(&d, &site.query.lane)
    {
        let heads = match ports.first(Role::Tokens) {
            // As long as the input, and so no part of it.
            Some(port)
                if dims(port.value).is_some_and(|p| p.last() == length(&site.query).as_ref()) =>
            {
                None
            }
            // Windows of a picture, or blocks of tokens, stand before the heads, as more sequences.
            _ => lead(graph, trace, &site.query, |h| all.is_multiple_of(h * batch)),
        };
        // A batch of one may be written into sizes that were declared open.
        let baked = !all.is_multiple_of(batch);
        site.heads = Some(heads.unwrap_or(if baked { all } else { all / batch }));
        sequences = heads
            .map(|h| all / h)
            .or(if baked { Some(1) } else { sequences });
    }
    // A fused operator may be given keys that were repeated for every query head.
    if let Some(sequences) = sequences
        && let Some(heads) = keys.heads.map(|n| n / sequences).filter(|n| *n > 0)
    {
        site.kv_heads = Some(site.kv_heads.map_or(heads, |n| n.min(heads)));
    }
}

/// Values to look at before the operands.
const NEAR: usize = 40;

/// Whether queries and keys are projected from one value, of which keys may be made fewer.
fn one_stream(graph: &Graph, classes: &Classes, site: &Site) -> bool {
    let near = |value: ValueId| {
        let mut seen = vec![value];
        let mut at = 0;
        while let Some(value) = seen.get(at).copied().filter(|_| seen.len() < NEAR) {
            at += 1;
            let Some((id, _)) = graph.producer(value) else {
                continue;
            };
            let inputs = graph.node(id).inputs().iter().flatten().copied();
            let content: Vec<ValueId> = inputs
                .filter(|v| classes.of_value(*v).has(Class::CONTENT))
                .collect();
            // What attention has mixed in comes from anywhere.
            let node = graph.node(id);
            if !(is_product(node.domain(), node.op()) && content.len() > 1) {
                seen.extend(content);
            }
        }
        seen
    };
    let queries = near(site.query.value);
    near(site.key.value).iter().any(|v| queries.contains(v))
}

fn batch(trace: &Trace, ports: &Ports) -> Option<usize> {
    let port = ports.first(Role::Tokens).or_else(|| ports.iter().next())?;
    let dims = trace.get(port.value).dims.as_ref()?;
    Some(if dims.len() > 1 { dims[0] } else { 1 })
}

/// Values to look back through for an axis of heads.
const AXES: usize = 12;

/// The heads of an operand, where they have an axis of their own behind that of the sequences, or
/// had one before both were merged; `fits` tells what may be a number of heads.
fn lead(
    graph: &Graph,
    trace: &Trace,
    operand: &Operand,
    fits: impl Fn(usize) -> bool,
) -> Option<usize> {
    let Operand {
        mut value,
        mut lane,
    } = *operand;
    for _ in 0..AXES {
        let dims = trace.get(value).dims.as_ref()?;
        if let Some(heads) = last_lead(dims, &lane).filter(|h| fits(*h)) {
            return Some(heads);
        }
        let (id, output) = graph.producer(value)?;
        let node = graph.node(id);
        let mut before = (0..node.inputs().len()).filter_map(|slot| {
            let lane = crate::graph::lane::back(graph, trace, id, output, slot, lane)?;
            Some((node.input(slot)?, lane)).filter(|(_, lane)| lane.feature.is_some())
        });
        (value, lane) = before.next()?;
    }
    None
}

/// The last axis that is neither tokens nor features, where there are several.
fn last_lead(dims: &[usize], lane: &Lane) -> Option<usize> {
    let others = (0..dims.len()).filter(|a| *a != lane.sequence && Some(*a) != lane.feature);
    let others: Vec<usize> = others.map(|a| dims[a]).collect();
    let last = *others.last()?;
    (others.len() > 1 && last > 0).then_some(last)
}

/// Elements that share a token and a feature: batch times heads.
pub(crate) fn per_token(dims: &[usize], lane: &Lane) -> Option<usize> {
    let all = dims.iter().try_fold(1usize, |n, d| n.checked_mul(*d))?;
    let each = dims.get(lane.sequence)?.checked_mul(lane.width(dims)?)?;
    all.checked_div(each)
}

/// The path that a node's name spells, or its label.
fn name(graph: &Graph, id: NodeId) -> String {
    let node = graph.node(id);
    let own = match (node.name(), node.output(0)) {
        ("", Some(out)) => graph.name(out).to_owned(),
        (name, _) => name.to_owned(),
    };
    match own.rsplit_once('/') {
        Some((path, _)) if !path.is_empty() => path.to_owned(),
        _ => own,
    }
}
