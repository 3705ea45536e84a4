//! Removes Transformer-XL's content bias u: without positions, q·k remains of
//! (q + u)·k + (q + v)·r.
//!
//! u is a vector that is added to queries before their product with keys, but not before their
//! product with positions; the bias of the projection is added before both. Some models add a
//! separate product of u and keys instead.

use posenc_ir::{Emitter, Graph, NodeId, Use, ValueId};
use rustc_hash::FxHashSet;

use crate::attention::Site;
use crate::detect::context::Context;
use crate::detect::joins;
use crate::edit::remove::zero_propagation::ZeroPropagation;
use crate::error::RewriteError;
use crate::graph::dataflow::Class;
use crate::graph::operators::{is_elementwise, is_layout, is_product};

/// The most operators between the product of queries and keys and the projection of queries.
const MAX_NODES: usize = 40;

pub(crate) fn remove(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    zeros: &mut ZeroPropagation<'_>,
    site: &Site,
    positions: &[Use],
) -> Result<(), RewriteError> {
    let graph = context.graph();
    let is_content = |v: &ValueId| context.is_content(*v);
    let mut shared = FxHashSet::default();
    for at in positions {
        let content = graph
            .node(at.node)
            .inputs()
            .iter()
            .flatten()
            .copied()
            .find(is_content);
        shared.extend(content.into_iter().flat_map(|v| sources(context, v)));
    }
    for (at, rest) in added(context, site, &shared) {
        if let Some(value) = graph.node(at.node).input(at.slot()) {
            out.redirect_use(value, at, rest)?;
        }
    }
    // Products of keys with one vector for each head.
    let (classes, trace) = (&context.found.classes, &context.found.trace);
    let keys: FxHashSet<ValueId> = sources(context, site.key.value).into_iter().collect();
    let products = joins(graph, classes, trace, site).meetings.into_iter();
    let biases: Vec<Use> = products
        .filter(|m| !positions.contains(&m.vectors))
        .filter(|m| sources(context, m.content).iter().any(|v| keys.contains(v)))
        .map(|m| m.vectors)
        .filter(|u| {
            let value = graph.node(u.node).input(u.slot());
            value.is_some_and(|v| is_vector(context, site, v))
        })
        .collect();
    zeros.add_zeros(&biases);
    Ok(())
}

/// A value and its predecessors up to its projection, nearest first.
fn sources(context: &Context<'_>, value: ValueId) -> Vec<ValueId> {
    let mut found = vec![value];
    while let Some((_, before)) = found.last().and_then(|v| source(context, *v)) {
        found.push(before);
        if found.len() > MAX_NODES {
            break;
        }
    }
    found
}

/// The only content that an elementwise or layout operator computes a value from, and its node.
fn source(context: &Context<'_>, value: ValueId) -> Option<(NodeId, ValueId)> {
    let graph = context.graph();
    let (id, _) = graph.producer(value)?;
    let node = graph.node(id);
    let through = node.domain().is_empty()
        && (is_elementwise(node.op()) || is_layout(node.op()))
        && !is_product(node);
    let inputs = node.inputs().iter().flatten().copied();
    let mut content = inputs.filter(|v| context.is_content(*v));
    let (Some(before), None) = (content.next(), content.next()) else {
        return None;
    };
    through.then_some((id, before))
}

/// The uses that read queries with vectors added, on the path from a value in `shared` to the
/// product, and the values to read instead; none if the path does not start in `shared`.
fn added(context: &Context<'_>, site: &Site, shared: &FxHashSet<ValueId>) -> Vec<(Use, ValueId)> {
    let graph = context.graph();
    let path = sources(context, site.query.value);
    let start = path.iter().position(|v| shared.contains(v));
    let product = site.product.and_then(|v| graph.producer(v));
    let (Some(start), Some((product, _))) = (start, product) else {
        return vec![];
    };
    let mut found = vec![];
    // The reader of the current value, and the first value with vectors added since.
    let (mut reader, mut passed) = (product, None);
    for pair in path[..=start].windows(2) {
        let [value, before] = *pair else { continue };
        let Some((id, _)) = graph.producer(value) else {
            break;
        };
        if is_bias(context, site, id, value, before) {
            passed = passed.or(Some(value));
            continue;
        }
        found.extend(
            passed
                .take()
                .and_then(|old| Some((slot(graph, reader, old)?, value))),
        );
        reader = id;
    }
    let last = path[start];
    found.extend(passed.and_then(|old| Some((slot(graph, reader, old)?, last))));
    found
}

/// The use by which a node reads a value.
fn slot(graph: &Graph, id: NodeId, value: ValueId) -> Option<Use> {
    let inputs = graph.node(id).inputs();
    let slot = inputs.iter().position(|v| *v == Some(value))?;
    Some(Use::new(id, slot))
}

/// Whether a node adds a constant vector for each head.
fn is_bias(
    context: &Context<'_>,
    site: &Site,
    id: NodeId,
    value: ValueId,
    before: ValueId,
) -> bool {
    let node = context.graph().node(id);
    let inputs = node.inputs().iter().flatten();
    let mut others = inputs.copied().filter(|v| *v != before);
    node.is("Add")
        && context.dims(value).is_some()
        && context.dims(value) == context.dims(before)
        && others.all(|v| is_vector(context, site, v))
}

/// Whether a value has at most one number for each feature of the heads, or such numbers repeated for each
/// sequence where sequences and heads are one axis.
fn is_vector(context: &Context<'_>, site: &Site, value: ValueId) -> bool {
    let found = context.found;
    let (known, class) = (found.trace.get(value), found.classes.of_value(value));
    let width = site.heads.zip(site.head_dim).map(|(n, d)| n * d);
    let (Some(width), Some(elements)) = (width.filter(|n| *n > 0), known.elements()) else {
        return false;
    };
    if class == Class::CONSTANT && elements <= width {
        return true;
    }
    let repeats = |numbers: &[f64]| {
        let again = numbers.iter().zip(numbers.iter().cycle().skip(width));
        again.take(elements - width).all(|(a, b)| a == b)
    };
    let numbers = || {
        known
            .to_f64()
            .map(|data| data.iter().copied().collect::<Vec<_>>())
    };
    class.is_length()
        && elements == width * found.lengths.batch
        && numbers().is_some_and(|numbers| repeats(&numbers))
}
