//! Where two runs diverge: the first value, in order of computation, that is out of bounds.

mod named;
mod side;

use std::collections::BTreeMap;

use posenc_ir::{Graph, NodeId, ValueId};

use super::VerifyError;
use super::compare::{Difference, compare};
use super::options::VerifyOptions;
use super::points::Point as RunPoint;
use super::subject::tolerance;
use crate::graph::dataflow::Class;
use crate::report::Neighbour;
use named::named_values;
pub(crate) use side::Side;
use side::{Point, value};

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
/// Of two models, the values with one name in both are compared, in order of computation. Of one
/// model in two runtimes, and where names tell nothing, a list is halved: every value of the main
/// graph, or else what detection finds in both models: queries, keys, scores and weights of every
/// attention site.
///
/// # Errors
/// When a runtime fails, or the weights before a value are too large to be cut out.
pub(crate) fn bisect(
    a: &Side<'_>,
    b: &Side<'_>,
    run: RunPoint,
    options: &VerifyOptions,
) -> Result<Option<Divergence>, VerifyError> {
    let is_one = std::ptr::eq(a.model, b.model);
    let tolerance = tolerance(a.model, a.found, options);
    let compared = |point: &Point| -> Result<Difference, VerifyError> {
        let got = value(a, point.of_a, run)?;
        let want = value(b, point.of_b, run)?;
        Ok(compare(&got, &want, tolerance))
    };
    let mut points = match is_one {
        true => vec![],
        false => named_values(a, b),
    };
    let graph = a.model.graph();
    let at_fault = match named::first(&points, [a, b], run, tolerance) {
        Some(first) => points[first].node,
        None => {
            points = match is_one {
                true => every_value(a),
                false => site_values(a, b),
            };
            let halved = halved(graph, &points, &|point| Ok(!compared(point)?.ok))?;
            let Some(node) = halved else {
                return Ok(None);
            };
            node
        }
    };
    let by_value = by_value(&points);
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

/// Halves a list of points down to the node of one that differs while no input of the node does;
/// `None` where the last point does not differ.
///
/// This assumes that all values after the first different one differ too. Parallel branches break
/// that assumption, so the search then follows inputs that differ backwards.
fn halved(
    graph: &Graph,
    points: &[Point],
    differs: &dyn Fn(&Point) -> Result<bool, VerifyError>,
) -> Result<Option<NodeId>, VerifyError> {
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
    let by_value = by_value(points);
    let mut at_fault = points[low].node;
    'back: loop {
        for input in graph.node(at_fault).inputs().iter().flatten() {
            if let Some(point) = by_value.get(input)
                && differs(point)?
            {
                at_fault = point.node;
                continue 'back;
            }
        }
        break;
    }
    Ok(Some(at_fault))
}

/// Points by the value of the first model.
fn by_value(points: &[Point]) -> BTreeMap<ValueId, &Point> {
    points.iter().map(|point| (point.of_a, point)).collect()
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
