//! Where two runs part: the first value, in order of computation, that is out of bounds.

use std::collections::BTreeMap;

use posenc_ir::{Model, NodeId, ValueId};
use posenc_runtime::{ModelSource, Optimization, Options};

use super::compare::compare;
use super::feeds::{Padding, feeds};
use super::run::{Target, run};
use super::sweep::tolerance;
use super::{VerifyError, VerifyOptions};
use crate::detect::Detection;
use crate::graph::dataflow::Class;
use crate::graph::ports::Lengths;

/// The most that the weights before a value may take.
const LIMIT: usize = 1 << 31;

/// A model that was detected, in a runtime.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The model.
    pub model: &'a Model,
    /// What was found in it.
    pub found: &'a Detection,
    /// What it runs on.
    pub target: &'a Target<'a>,
    /// Whether the runtime may change the graph.
    pub optimization: Optimization,
}

/// A value of both sides, with the node of the first that computes it.
type Point = (NodeId, ValueId, ValueId);

/// Names the node of `a` behind the first value that differs from that of `b`; `None` where none
/// does.
///
/// Of one model in two runtimes every value of the main graph can be looked at; of two models
/// those that detection finds in both: queries, keys, scores and weights of every attention site.
/// The search halves the list, as if what has parted stayed apart; where branches run side by side
/// that is not so, and the search goes on backwards from node to node until nothing that enters
/// one has parted.
///
/// # Errors
/// Where a runtime fails, or the weights before a value are too large to be cut out.
pub fn bisect(
    a: &Side<'_>,
    b: &Side<'_>,
    at: Lengths,
    options: &VerifyOptions,
) -> Result<Option<String>, VerifyError> {
    let points = match std::ptr::eq(a.model, b.model) {
        true => every_value(a),
        false => sites(a, b),
    };
    let tolerance = tolerance(a.model, a.found, options);
    let parts = |(_, of_a, of_b): &Point| -> Result<bool, VerifyError> {
        let got = value(a, *of_a, at)?;
        let want = value(b, *of_b, at)?;
        Ok(!compare(&got, &want, tolerance).ok)
    };
    let Some(last) = points.last() else {
        return Ok(None);
    };
    if !parts(last)? {
        return Ok(None);
    }
    // The first of `points[low..=high]` that parts; all before `low` do not.
    let (mut low, mut high) = (0, points.len() - 1);
    while low < high {
        let middle = low + (high - low) / 2;
        match parts(&points[middle])? {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    let of: BTreeMap<ValueId, &Point> = points.iter().map(|p| (p.1, p)).collect();
    let mut at_fault = points[low].0;
    'back: loop {
        for input in a.model.graph().node(at_fault).inputs().iter().flatten() {
            if let Some(point) = of.get(input)
                && parts(point)?
            {
                at_fault = point.0;
                continue 'back;
            }
        }
        return Ok(Some(a.model.graph().place(at_fault)));
    }
}

/// Float content of the main graph, in order of computation.
fn every_value(side: &Side<'_>) -> Vec<Point> {
    let graph = side.model.graph();
    let order = graph.order(graph.main()).unwrap_or_default();
    let outputs = order.iter().filter_map(|id| {
        let value = graph.node(*id).output(0)?;
        let known = side.found.trace.get(value);
        let counts = side.found.classes.of_value(value).has(Class::CONTENT)
            && known.dtype.is_some_and(|t| t.is_float())
            && known.elements() != Some(0);
        counts.then_some((*id, value, value))
    });
    outputs.collect()
}

/// What every attention site of both models has, in order of computation.
fn sites(a: &Side<'_>, b: &Side<'_>) -> Vec<Point> {
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
                points.push((node, of_a, of_b));
            }
        }
    }
    points
}

/// One value of a run.
fn value(side: &Side<'_>, value: ValueId, at: Lengths) -> Result<posenc_ir::Tensor, VerifyError> {
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
    let fed = feeds(graph, &side.found.ports, at, Padding::Right)?;
    let got = run(session.as_mut(), &fed, name)?;
    let first = got.into_iter().next().map(|(_, tensor)| tensor);
    first.ok_or_else(|| VerifyError::unsupported(name, "the runtime gave no output"))
}
