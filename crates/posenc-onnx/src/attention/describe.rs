//! Heads, cache and kind of a site.

use posenc_ir::eval::Trace;
use posenc_ir::{DType, Graph, Model, NodeId, ScopeId, ValueId};

use crate::attention::heads;
use crate::attention::keys::{per_token, trace_back};
use crate::attention::site::{Operand, Site};
use crate::graph::bodies::{holder, scan_axis, states};
use crate::graph::dataflow::{Class, Classes};
use crate::graph::lane::{Lane, back};
use crate::graph::operators::is_product;
use crate::graph::ports::{Ports, Role};

/// Heads, cache and kind.
pub(crate) fn describe(
    model: &Model,
    classes: &Classes,
    trace: &Trace,
    ports: &Ports,
    site: &mut Site,
) {
    let graph = model.graph();
    site.name = name(graph, site.node);
    let dims = |v: ValueId| trace.get(v).dims.clone();
    let length = |o: &Operand| dims(o.value).map(|d| d[o.lane.sequence]);
    let keys = trace_back(graph, classes, trace, site);
    site.past |= keys.past;
    site.buffer = keys.buffer;
    let (queries, new) = (length(&site.query), keys.length.or(length(&site.key)));
    let (from, to) = (
        classes.of_value(site.query.value),
        classes.of_value(site.key.value),
    );
    let other_length = matches!((queries, new), (Some(q), Some(k)) if q != k);
    site.cross =
        !from.shares_inputs(to) || other_length && !one_stream((graph, classes, trace), site);
    let sequences = batch(trace, ports).map(|n| n.max(1));
    let is_single = sequences.is_some_and(|n| sees_one(graph, classes, trace, site.scope, n));
    let mut sequences = sequences.map(|n| if is_single { 1 } else { n });
    if site.heads.is_none()
        && let (Some(d), Some(batch)) = (dims(site.query.value), sequences)
        && let Some(all) = per_token(&d, &site.query.lane)
    {
        let split = heads::split((graph, classes, trace), &site.query);
        let split = split.map(|axes| axes.into_iter().map(|axis| d[axis]).product());
        let split = split.filter(|heads: &usize| all.is_multiple_of((*heads).max(1)));
        let heads = split.or_else(|| match ports.first(Role::Tokens) {
            // As long as the input, and so no part of it.
            Some(port)
                if dims(port.value)
                    .is_some_and(|p| p.get(port.token_axis()) == length(&site.query).as_ref()) =>
            {
                None
            }
            // Windows of a picture, or blocks of tokens, precede the heads, as more sequences.
            _ => lead(graph, trace, &site.query, |h| all.is_multiple_of(h * batch)),
        });
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
pub(super) fn one_stream((graph, classes, trace): (&Graph, &Classes, &Trace), site: &Site) -> bool {
    let near = |value: ValueId| {
        let mut seen = vec![value];
        let mut at = 0;
        while let Some(value) = seen.get(at).copied().filter(|_| seen.len() < NEAR) {
            at += 1;
            let Some((id, _)) = graph.producer(value) else {
                continue;
            };
            let inputs = graph.node(id).inputs().iter().flatten().copied();
            // Ids are the content of several streams.
            let is_id = |v: ValueId| match trace.get(v).dtype {
                Some(DType::I64) => true,
                // Products of quantized features have more axes.
                Some(DType::I32) => trace
                    .get(v)
                    .dims
                    .as_ref()
                    .is_some_and(|dims| dims.len() < 3),
                _ => false,
            };
            let content: Vec<ValueId> = inputs
                .filter(|v| classes.of_value(*v).has(Class::CONTENT) && !is_id(*v))
                .collect();
            // After attention, content of any position is mixed in.
            let node = graph.node(id);
            if !(is_product(node) && content.len() > 1) {
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
    let axis = port.batch_axis().filter(|_| dims.len() > 1);
    Some(axis.map_or(1, |axis| dims[axis]))
}

/// Whether a scope, or one around it, is the body of a `Scan` along content of so many sequences, of which it sees one.
fn sees_one(
    graph: &Graph,
    classes: &Classes,
    trace: &Trace,
    mut scope: ScopeId,
    sequences: usize,
) -> bool {
    while let Some(id) = holder(graph, scope) {
        let node = graph.node(id);
        let first = states(node);
        let is_sliced = |slot: usize| {
            let sliced = node.input(slot)?;
            let dims = trace.get(sliced).dims.as_ref()?;
            let axis = scan_axis(node, slot - first, dims.len());
            let is_content = classes.of_value(sliced).has(Class::FRESH);
            Some(is_content && axis == 0 && dims.first() == Some(&sequences))
        };
        let mut slots = first..node.inputs().len();
        if node.is("Scan") && slots.any(|slot| is_sliced(slot) == Some(true)) {
            return true;
        }
        scope = node.scope();
    }
    false
}

/// Values to look back through for an axis of heads.
const AXES: usize = 12;

/// The heads of an operand, where they have an axis of their own after that of the sequences, or
/// had one before both were merged. `fits` decides what may be a number of heads.
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
            let lane = back(graph, trace, id, output, slot, lane)?;
            Some((node.input(slot)?, lane)).filter(|(_, lane)| lane.feature.is_some())
        });
        (value, lane) = before.next()?;
    }
    None
}

/// The last axis that is neither tokens nor features, where there are several.
fn last_lead(dims: &[usize], lane: &Lane) -> Option<usize> {
    let others = (0..dims.len()).filter(|a| *a != lane.sequence && Some(*a) != lane.feature);
    let mut others: Vec<usize> = others.map(|a| dims[a]).collect();
    // Axes of one after that of the heads are none.
    while others.len() > 2 && others.last() == Some(&1) {
        others.pop();
    }
    let last = *others.last()?;
    (others.len() > 1 && last > 0).then_some(last)
}

/// The path in a node's name, or the name.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_of_one_after_the_heads_is_none() {
        let of = |dims: &[usize], sequence, feature| {
            let lane = Lane {
                feature: Some(feature),
                ..Lane::of_sequence(sequence)
            };
            last_lead(dims, &lane)
        };
        assert_eq!(of(&[8, 4, 17, 16], 2, 3), Some(4));
        assert_eq!(of(&[8, 4, 17, 1, 16], 2, 4), Some(4));
        assert_eq!(of(&[8, 1, 4, 17, 1, 16], 3, 5), Some(4));
        assert_eq!(of(&[8, 1, 17, 16], 2, 3), Some(1), "one head");
        assert_eq!(of(&[32, 17, 16], 1, 2), None, "folded");
    }
}
