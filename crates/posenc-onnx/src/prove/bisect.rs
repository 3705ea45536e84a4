//! Where two runs diverge: the first value, in order of computation, that is out of bounds.

use std::collections::BTreeMap;

use posenc_ir::{Graph, Model, NodeId, Tensor, ValueId};
use posenc_runtime::{ModelSource, Optimization, Options};

use super::VerifyError;
use super::compare::{Difference, compare};
use super::inputs;
use super::options::VerifyOptions;
use super::points::Point as RunPoint;
use super::run::{RuntimeTarget, run};
use super::subject::tolerance;
use crate::detect::Found;
use crate::graph::dataflow::Class;
use crate::report::Neighbour;

/// The most bytes that the weights before a value may take.
const LIMIT: usize = 1 << 31;

/// One side of a comparison: a model and its detection, in a runtime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side<'a> {
    /// The model.
    pub model: &'a Model,
    /// Its detection.
    pub found: &'a Found,
    /// What it runs on.
    pub target: &'a RuntimeTarget<'a>,
    /// Whether the runtime may optimize the graph.
    pub optimization: Optimization,
    /// The inputs that were given; empty for random ones.
    pub given: &'a [(String, Tensor)],
}

/// A value to compare.
#[derive(Clone, Copy, Debug)]
struct Point {
    /// The node of the first model that computes it.
    node: NodeId,
    of_a: ValueId,
    of_b: ValueId,
}

/// Where two runs diverge.
#[derive(Debug)]
pub(crate) struct Divergence {
    /// The place of the node that computes the first value to differ.
    pub place: String,
    /// What it reads is made by, itself, and what reads it.
    pub around: Vec<Neighbour>,
}

/// Finds the node of `a` that computes the first value to differ from that of `b`; `None` if none
/// differs.
///
/// For one model in two runtimes, every value of the main graph is compared; for two models, those
/// that detection finds in both: queries, keys, scores and weights of every attention site. The
/// search bisects the list, which assumes that all values after the first different one differ
/// too. Parallel branches break that assumption, so the search then follows inputs that differ
/// backwards, until no input of a node differs.
///
/// # Errors
/// When a runtime fails, or the weights before a value are too large to be cut out.
pub(crate) fn bisect(
    a: &Side<'_>,
    b: &Side<'_>,
    run: RunPoint,
    options: &VerifyOptions,
) -> Result<Option<Divergence>, VerifyError> {
    let points = if std::ptr::eq(a.model, b.model) {
        every_value(a)
    } else {
        site_values(a, b)
    };
    let tolerance = tolerance(a.model, a.found, options);
    let compared = |point: &Point| -> Result<Difference, VerifyError> {
        let got = value(a, point.of_a, run)?;
        let want = value(b, point.of_b, run)?;
        Ok(compare(&got, &want, tolerance))
    };
    let differs = |point: &Point| compared(point).map(|found| !found.ok);
    let Some(last) = points.last() else {
        return Ok(None);
    };
    if !differs(last)? {
        return Ok(None);
    }
    // The first value that differs is in `points[low..=high]`.
    let (mut low, mut high) = (0, points.len() - 1);
    while low < high {
        let middle = low + (high - low) / 2;
        if differs(&points[middle])? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    let by_value: BTreeMap<ValueId, &Point> = points.iter().map(|p| (p.of_a, p)).collect();
    let mut at_fault = points[low].node;
    'back: loop {
        for input in a.model.graph().node(at_fault).inputs().iter().flatten() {
            if let Some(point) = by_value.get(input)
                && differs(point)?
            {
                at_fault = point.node;
                continue 'back;
            }
        }
        break;
    }
    let graph = a.model.graph();
    let mut around = vec![];
    for node in neighbours(graph, at_fault) {
        let point = graph.node(node).outputs().iter().flatten();
        let point = point.filter_map(|value| by_value.get(value)).next();
        // A value that cannot be cut out is shown without its difference.
        let found = point.and_then(|point| compared(point).ok());
        around.push(Neighbour {
            node: graph.node_text(node),
            is_first: node == at_fault,
            max_abs: found.and_then(|found| found.max_abs),
            ok: found.map(|found| found.ok),
        });
    }
    Ok(Some(Divergence {
        place: graph.place(at_fault),
        around,
    }))
}

/// The nodes that are shown before and after the one at fault, at most.
const SHOWN: usize = 6;

/// The node with those that make what it reads, and those that read what it makes, in order of computation.
fn neighbours(graph: &Graph, node: NodeId) -> Vec<NodeId> {
    let at = graph.node(node);
    let made = at.inputs().iter().flatten();
    let before = made.filter_map(|value| Some(graph.producer(*value)?.0));
    let made = at.outputs().iter().flatten();
    let after = made.flat_map(|value| graph.uses(*value).iter().map(|at| at.node));
    let mut all: Vec<NodeId> = before.take(SHOWN).chain([node]).collect();
    all.extend(after.take(SHOWN));
    let mut seen = vec![];
    all.retain(|node| {
        let is_new = !seen.contains(node);
        seen.push(*node);
        is_new
    });
    all
}

/// Float content values of the main graph, in order of computation.
fn every_value(side: &Side<'_>) -> Vec<Point> {
    let graph = side.model.graph();
    let order = graph.order(graph.main()).unwrap_or_default();
    let points = order.iter().filter_map(|node| {
        let value = graph.node(*node).output(0)?;
        let known = side.found.trace.get(value);
        let counts = side.found.classes.of_value(value).has(Class::CONTENT)
            && known.dtype.is_some_and(|t| t.is_float())
            && known.elements() != Some(0);
        counts.then_some(Point {
            node: *node,
            of_a: value,
            of_b: value,
        })
    });
    points.collect()
}

/// Queries, keys, scores and weights of the attention sites of both models, in order of
/// computation.
fn site_values(a: &Side<'_>, b: &Side<'_>) -> Vec<Point> {
    let graph = a.model.graph();
    let values = |side: &Side<'_>, i: usize| {
        let site = &side.found.attention[i];
        let weights = side.model.graph().node(site.node).output(0);
        [
            Some(site.query.value),
            Some(site.key.value),
            site.scores,
            weights,
        ]
    };
    let mut points = vec![];
    for i in 0..a.found.attention.len().min(b.found.attention.len()) {
        for (of_a, of_b) in values(a, i).into_iter().zip(values(b, i)) {
            if let (Some(of_a), Some(of_b)) = (of_a, of_b)
                && let Some((node, _)) = graph.producer(of_a)
            {
                points.push(Point { node, of_a, of_b });
            }
        }
    }
    points
}

/// Runs the part of a model that computes one value.
fn value(side: &Side<'_>, value: ValueId, at: RunPoint) -> Result<Tensor, VerifyError> {
    let graph = side.model.graph();
    let cut = side.model.cut(&[], &[value], LIMIT)?;
    let source = ModelSource::Bytes {
        model: &cut.bytes,
        folder: None,
    };
    let options = Options {
        provider: side.target.provider.clone(),
        optimization: side.optimization,
        fallback: side.target.fallback,
        ..Options::default()
    };
    let name = graph.name(value);
    let session = side.target.backend.load(source, &options);
    let mut session = session.map_err(|e| VerifyError::runtime(name, e))?;
    let fed = inputs::fed((graph, &side.found.ports), (at.at, at.padding), side.given)?;
    let outputs = run(session.as_mut(), &fed, name)?;
    let first = outputs.into_iter().next().map(|(_, tensor)| tensor);
    first.ok_or_else(|| VerifyError::unsupported(name, "the runtime returned no output"))
}
