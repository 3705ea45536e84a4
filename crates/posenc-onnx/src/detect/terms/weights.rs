//! Vectors by distance that the weights of attention gather in addition to the values.

use ndarray::{Array2, ArrayD, Axis, IxDyn};
use posenc_ir::eval::{Budget, Trace, Value, probe};
use posenc_ir::{Graph, Model, NodeId, Use, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::meeting::chain;
use super::met::{self, Distances};
use crate::attention::Site;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::operators::{is_elementwise, is_product, is_rearrangement};

const BUDGET: Budget = Budget { elements: 1 << 22 };

/// A product of weights with vectors that carry no content.
#[derive(Clone, Debug)]
pub(crate) struct Gathered {
    pub(crate) node: NodeId,
    pub(crate) vectors: Use,
    pub(crate) chain: Vec<ValueId>,
}

/// The products of a site's weights with vectors by position.
pub(crate) fn gathered(
    graph: &Graph,
    classes: &Classes,
    trace: &Trace,
    site: &Site,
) -> Vec<Gathered> {
    let mut found = vec![];
    let mut stack: Vec<ValueId> = graph
        .node(site.node)
        .outputs()
        .iter()
        .flatten()
        .copied()
        .collect();
    if site.product.is_none() {
        return found;
    }
    let mut seen = FxHashSet::default();
    while let Some(value) = stack.pop() {
        if !seen.insert(value) {
            continue;
        }
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            if is_product(node) {
                let slot = 1 - at.slot().min(1);
                let Some(vectors) = node.input(slot) else {
                    continue;
                };
                if !classes.of_value(vectors).has(Class::CONTENT) {
                    found.push(Gathered {
                        node: at.node,
                        vectors: Use::new(at.node, slot),
                        chain: chain(graph, trace, vectors),
                    });
                }
            } else if node.domain().is_empty()
                && (is_elementwise(node.op()) || is_rearrangement(node.op()))
            {
                stack.extend(node.outputs().iter().flatten());
            }
        }
    }
    found.sort_by_key(|g| g.node);
    found.dedup_by_key(|g| g.node);
    found
}

/// The row that each distance gathers: weights of single keys, and a table filled with the numbers
/// of its rows. Also the table and the axis of its rows.
pub(crate) fn rows(
    model: &Model,
    trace: &Trace,
    site: &Site,
    gathered: &Gathered,
) -> Option<(Array2<Option<i64>>, ValueId, usize)> {
    let graph = model.graph();
    let weights = graph.node(site.node).output(0)?;
    let output = graph.node(gathered.node).output(0)?;
    let table = *gathered.chain.last()?;
    let [at_query, at_key] = site.plane?;
    let dims = trace.get(weights).dims.clone()?;
    let (queries, keys) = (*dims.get(at_query)?, *dims.get(at_key)?);
    let tables = trace.get(table).dims.clone()?;
    if !BUDGET.allows(&dims) || !BUDGET.allows(&tables) {
        return None;
    }
    let run = |pick: &dyn Fn(usize, usize) -> f64, fill: &dyn Fn(&IxDyn) -> f64| {
        let weigh = ArrayD::from_shape_fn(dims.clone(), |at| pick(at[at_query], at[at_key]));
        let filled = ArrayD::from_shape_fn(tables.clone(), |at| fill(&at));
        let seeds = FxHashMap::from_iter([
            (weights, Value::float(weigh)),
            (table, Value::float(filled)),
        ]);
        probe(model, trace, &seeds, &[output], &BUDGET)
            .ok()?
            .first()?
            .to_f64()
    };
    // The axis of the output along which weights of one query act at one place.
    let one = run(&|i, j| f64::from(u8::from(i == 1 && j == 0)), &|_| 1.0)?;
    let places = |axis: usize| {
        let lanes = one.axis_iter(Axis(axis)).enumerate();
        lanes
            .filter(|(_, l)| l.iter().any(|v| *v != 0.0))
            .map(|(i, _)| i)
            .collect::<Vec<_>>()
    };
    let along = (0..one.ndim()).find(|a| one.len_of(Axis(*a)) == queries && places(*a) == [1])?;
    let numbered = |key: usize, axis: usize| -> Option<Vec<f64>> {
        let got = run(&|_, j| f64::from(u8::from(j == key)), &|at| at[axis] as f64)?;
        let lanes = got.axis_iter(Axis(along));
        lanes
            .map(|lane| {
                let first = *lane.first()?;
                lane.iter()
                    .all(|v| (v - first).abs() < 1e-6)
                    .then_some(first)
            })
            .collect()
    };
    let differ = |v: &Vec<f64>| v.iter().any(|x| (x - v[0]).abs() > 0.5);
    let mut varying = (0..tables.len())
        .filter(|a| tables[*a] > 1)
        .filter(|a| numbered(keys / 2, *a).is_some_and(|v| differ(&v)));
    let axis = varying.next().filter(|_| varying.next().is_none())?;
    let mut rows = Array2::from_elem((queries, keys), None);
    for key in [0, keys / 2, keys - 1] {
        for (i, row) in numbered(key, axis)?.into_iter().enumerate() {
            rows[[i, key]] = Some(row.round() as i64);
        }
    }
    Some((rows, table, axis))
}

/// The same for each distance.
pub(crate) fn by_distance(rows: &Array2<Option<i64>>) -> Option<Distances> {
    let (queries, keys) = rows.dim();
    let past = i64::try_from(keys.saturating_sub(queries)).ok()?;
    met::by_distance(rows, past)
}
