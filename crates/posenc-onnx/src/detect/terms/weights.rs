//! Vectors by distance that the weights of attention gather in addition to the values.

use ndarray::{Array2, ArrayD, Axis, IxDyn};
use posenc_ir::eval::{Budget, Trace, Value, probe};
use posenc_ir::{Graph, Model, NodeId, Use, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::meeting::chain;
use crate::attention::Site;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::operators::{is_copy, is_elementwise, is_product, is_rearrangement};

const BUDGET: Budget = Budget { elements: 1 << 22 };

/// A product of weights with vectors that carry no content.
#[derive(Clone, Debug)]
pub(crate) struct Gathered {
    pub(crate) node: NodeId,
    /// The weights, as a softmax gives them.
    pub(crate) weights: ValueId,
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
    if site.product.is_none() {
        return found;
    }
    let softmaxes = softmaxes(graph, site).into_iter();
    let mut stack: Vec<(ValueId, ValueId)> = softmaxes
        .filter_map(|id| graph.node(id).output(0))
        .map(|v| (v, v))
        .collect();
    let mut seen = FxHashSet::default();
    while let Some((value, weights)) = stack.pop() {
        if !seen.insert(value) {
            continue;
        }
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            if is_product(node) {
                let second = if node.is("QLinearMatMul") { 3 } else { 1 };
                let slot = if at.slot() == 0 { second } else { 0 };
                let Some(vectors) = node.input(slot) else {
                    continue;
                };
                if !classes.of_value(vectors).has(Class::CONTENT) {
                    found.push(Gathered {
                        node: at.node,
                        weights,
                        vectors: Use::new(at.node, slot),
                        chain: chain(graph, trace, vectors),
                    });
                }
            } else if node.domain().is_empty()
                && (is_elementwise(node.op())
                    || is_rearrangement(node.op())
                    || matches!(node.op(), "Pad" | "Slice"))
            {
                let outputs = node.outputs().iter().flatten();
                stack.extend(outputs.map(|out| (*out, weights)));
            }
        }
    }
    found.sort_by_key(|g| g.node);
    found.dedup_by_key(|g| g.node);
    found
}

/// The softmax of a site, and others of the same scores, also of another type.
pub(crate) fn softmaxes(graph: &Graph, site: &Site) -> Vec<NodeId> {
    let mut all = vec![site.node];
    let Some(scores) = site.scores.filter(|_| graph.node(site.node).is("Softmax")) else {
        return all;
    };
    let mut stack = vec![before_copies(graph, scores)];
    while let Some(value) = stack.pop() {
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            if node.is("Softmax") && !all.contains(&at.node) {
                all.push(at.node);
            } else if is_copy(node.op()) && at.slot() == 0 {
                stack.extend(node.output(0));
            }
        }
    }
    all
}

/// The value that a value is a copy of.
fn before_copies(graph: &Graph, mut value: ValueId) -> ValueId {
    while let Some((id, _)) = graph.producer(value) {
        let node = graph.node(id);
        match node.input(0) {
            Some(input) if is_copy(node.op()) => value = input,
            _ => break,
        }
    }
    value
}

/// What the weights of pairs gather.
pub(crate) struct Rows {
    /// The row of each pair; `None` for pairs that were not run.
    pub(crate) rows: Array2<Option<i64>>,
    /// Pairs that gather nothing.
    pub(crate) without: Vec<(usize, usize)>,
    pub(crate) table: ValueId,
    /// The axis of the rows of the table.
    pub(crate) axis: usize,
}

/// Reads what a product gathers: weights of single keys, and a table filled with the numbers of its
/// rows. `None` for a product that keeps the keys apart, as one that mixes heads does.
///
/// # Errors
/// With the reason why the rows cannot be read.
pub(crate) fn rows(
    model: &Model,
    trace: &Trace,
    site: &Site,
    gathered: &Gathered,
) -> Result<Option<Rows>, &'static str> {
    const BEYOND: &str = "weights of attention are multiplied with vectors that are not read";
    let probe = Probe::of(model, trace, site, gathered).ok_or(BEYOND)?;
    let places = |key: usize| -> Option<Vec<bool>> {
        let one = probe.run(&|i, j| f64::from(u8::from(i == 1 && j == key)), &|_| 1.0)?;
        Some(one.iter().map(|v| *v != 0.0).collect())
    };
    if places(0).ok_or(BEYOND)? != places(1).ok_or(BEYOND)? {
        return Ok(None);
    }
    probe.rows().map(Some).ok_or(BEYOND)
}

/// A product of the weights of a site with vectors, run with numbers of our own.
struct Probe<'a> {
    model: &'a Model,
    trace: &'a Trace,
    weights: ValueId,
    output: ValueId,
    table: ValueId,
    /// The axes of queries and keys in the weights.
    plane: [usize; 2],
    dims: Vec<usize>,
    /// The number of keys. A sink adds a weight that is that of no key.
    keys: usize,
    tables: Vec<usize>,
}

impl<'a> Probe<'a> {
    fn of(model: &'a Model, trace: &'a Trace, site: &Site, gathered: &Gathered) -> Option<Self> {
        let graph = model.graph();
        let weights = gathered.weights;
        let table = *gathered.chain.last()?;
        let dims = trace.get(weights).dims.clone()?;
        let tables = trace.get(table).dims.clone()?;
        let plane = site.plane?;
        let fits = plane
            .iter()
            .all(|axis| dims.get(*axis).is_some_and(|n| *n > 1));
        let weighed = *dims.get(plane[1])?;
        let keys = site.keys(trace).map_or(weighed, |keys| keys.min(weighed));
        (fits && BUDGET.allows(&dims) && BUDGET.allows(&tables)).then_some(Self {
            model,
            trace,
            weights,
            output: graph.node(gathered.node).output(0)?,
            table,
            plane,
            dims,
            keys,
            tables,
        })
    }

    fn run(
        &self,
        pick: &dyn Fn(usize, usize) -> f64,
        fill: &dyn Fn(&IxDyn) -> f64,
    ) -> Option<ArrayD<f64>> {
        let [query, key] = self.plane;
        let weigh = ArrayD::from_shape_fn(self.dims.clone(), |at| pick(at[query], at[key]));
        let filled = ArrayD::from_shape_fn(self.tables.clone(), |at| fill(&at));
        let seeds = FxHashMap::from_iter([
            (self.weights, Value::float(weigh)),
            (self.table, Value::float(filled)),
        ]);
        let got = probe(self.model, self.trace, &seeds, &[self.output], &BUDGET).ok()?;
        got.first()?.to_f64()
    }

    fn rows(&self) -> Option<Rows> {
        let (queries, keys) = (self.dims[self.plane[0]], self.keys);
        // The axis of the output along which weights of one query act at one place.
        let one = self.run(&|i, j| f64::from(u8::from(i == 1 && j == 0)), &|_| 1.0)?;
        let places = |axis: usize| {
            let lanes = one.axis_iter(Axis(axis)).enumerate();
            lanes
                .filter(|(_, l)| l.iter().any(|v| *v != 0.0))
                .map(|(i, _)| i)
                .collect::<Vec<_>>()
        };
        let along =
            (0..one.ndim()).find(|a| one.len_of(Axis(*a)) == queries && places(*a) == [1])?;
        let gathered = |key: usize, fill: &dyn Fn(&IxDyn) -> f64| -> Option<Vec<f64>> {
            let got = self.run(&|_, j| f64::from(u8::from(j == key)), fill)?;
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
        let numbered = |key: usize, axis: usize| gathered(key, &|at| at[axis] as f64);
        let differ = |v: &Vec<f64>| v.iter().any(|x| (x - v[0]).abs() > 0.5);
        let mut varying = (0..self.tables.len())
            .filter(|a| self.tables[*a] > 1)
            .filter(|a| numbered(keys / 2, *a).is_some_and(|v| differ(&v)));
        let axis = varying.next().filter(|_| varying.next().is_none())?;
        let mut rows = Array2::from_elem((queries, keys), None);
        let mut without = vec![];
        for key in [0, keys / 2, keys - 1] {
            let ones = gathered(key, &|_| 1.0)?;
            for (i, (row, one)) in numbered(key, axis)?.into_iter().zip(ones).enumerate() {
                if one == 0.0 {
                    without.push((i, key));
                } else {
                    rows[[i, key]] = Some(row.round() as i64);
                }
            }
        }
        let table = self.table;
        Some(Rows {
            rows,
            without,
            table,
            axis,
        })
    }
}
