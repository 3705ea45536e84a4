//! The scores of a site between the product of queries and keys and the softmax: what is added to
//! them, and what they are where queries and keys are zero.

use ndarray::{Array4, ArrayD, Axis};
use posenc_ir::eval::{Budget, Trace, Value, probe};
use posenc_ir::{DType, Graph, Model, Use, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::attention::Site;
use crate::dataflow::{Class, Classes};

/// Scores this far below the best of a row are hidden.
const HIDDEN: f64 = 1e3;

/// Elements that a probe of the scores may take.
const BUDGET: Budget = Budget { elements: 1 << 23 };

/// What the softmax of a site sees where queries and keys are zero.
#[derive(Clone, Debug)]
pub(crate) struct Plane {
    /// `[group, head, query, key]`: a group is a sequence of the batch, or a window.
    pub(crate) bias: Array4<f64>,
    /// Keys that came before the first query.
    pub(crate) past: usize,
}

impl Plane {
    /// Whether a score is hidden by a mask: far below the best of its row.
    pub(crate) fn is_hidden(&self, [group, head, query, key]: [usize; 4]) -> bool {
        let row = self.bias.slice(ndarray::s![group, head, query, ..]);
        let best = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let at = row[key];
        at.is_nan() || best - at > HIDDEN
    }

    /// The group in which the fewest keys are hidden: of windows, one that no edge cuts.
    pub(crate) fn clearest(&self) -> usize {
        let [groups, _, queries, keys] = self.bias.dim().into();
        let hidden = |g: usize| {
            let all = (0..queries).flat_map(|i| (0..keys).map(move |j| (i, j)));
            all.filter(|(i, j)| self.is_hidden([g, 0, *i, *j])).count()
        };
        (0..groups).min_by_key(|g| hidden(*g)).unwrap_or(0)
    }
}

/// The uses at which content other than the product itself joins the scores: terms of their own
/// (queries that meet positions, and the like).
pub(crate) fn terms(graph: &Graph, classes: &Classes, site: &Site) -> Vec<Use> {
    let (Some(product), Some(scores)) = (site.product, site.scores) else {
        return vec![];
    };
    let content = |v: &ValueId| classes.of_value(*v).has(Class::CONTENT);
    // Everything behind the scores, products being the end.
    let mut nodes = vec![];
    let mut seen = FxHashSet::default();
    let mut stack = vec![scores];
    while let Some(value) = stack.pop() {
        if value == product || !seen.insert(value) {
            continue;
        }
        let Some((id, _)) = graph.producer(value) else {
            continue;
        };
        let node = graph.node(id);
        if crate::attention::is_product(node.domain(), node.op()) || node.is("Softmax") {
            continue;
        }
        nodes.push(id);
        stack.extend(node.inputs().iter().flatten().copied().filter(content));
    }
    // What the product flows into.
    let mut main = FxHashSet::from_iter([product]);
    let mut stack = vec![product];
    while let Some(value) = stack.pop() {
        for at in graph.uses(value) {
            for out in graph.node(at.node).outputs().iter().flatten() {
                if seen.contains(out) && main.insert(*out) {
                    stack.push(*out);
                }
            }
        }
    }
    nodes.sort_unstable();
    nodes.dedup();
    let mut terms = vec![];
    for id in nodes {
        let inputs = graph.node(id).inputs();
        if !inputs.iter().flatten().any(|v| main.contains(v)) {
            continue;
        }
        for (slot, value) in inputs.iter().enumerate() {
            if let Some(value) = value
                && content(value)
                && !main.contains(value)
            {
                terms.push(Use::new(id, slot));
            }
        }
    }
    terms
}

/// What the softmax of a site sees where queries and keys are zero, in a run of the graph.
///
/// Of a fused operator, its bias or mask input; hidden pairs of a bool mask are −∞.
pub(crate) fn plane(model: &Model, classes: &Classes, trace: &Trace, site: &Site) -> Option<Plane> {
    let (data, [rows, columns]) = match (site.product, site.scores) {
        (Some(product), Some(scores)) => (
            zeroed(model, classes, trace, site, product, scores)?,
            site.plane?,
        ),
        _ => {
            let slots = crate::mask::bias_slots(model.graph(), site.node);
            let slot = slots
                .iter()
                .find(|s| model.graph().node(site.node).input(**s).is_some())?;
            let data = fused(trace.get(model.graph().node(site.node).input(*slot)?))?;
            let rank = data.ndim();
            (data, [rank.checked_sub(2)?, rank.checked_sub(1)?])
        }
    };
    let keys = trace.get(site.key.value).dims.as_ref()?[site.key.lane.sequence];
    let bias = by_head(data, [rows, columns], site.heads)?;
    // A sink adds a column that is no key.
    let keys = match site.scores {
        Some(_) => keys.min(bias.dim().3),
        None => bias.dim().3,
    };
    let bias = bias.slice_move(ndarray::s![.., .., .., ..keys]);
    let past = keys.saturating_sub(bias.dim().2);
    Some(Plane { bias, past })
}

/// The scores with the product and all other terms set to zero.
fn zeroed(
    model: &Model,
    classes: &Classes,
    trace: &Trace,
    site: &Site,
    product: ValueId,
    scores: ValueId,
) -> Option<ArrayD<f64>> {
    let graph = model.graph();
    let zeros = |v: ValueId| {
        let dims = trace.get(v).dims.clone()?;
        let small = BUDGET.allows(&dims);
        small.then(|| (v, Value::float(ArrayD::<f64>::zeros(dims))))
    };
    let others = terms(graph, classes, site);
    let others = others
        .iter()
        .filter_map(|u| graph.node(u.node).input(u.slot()));
    let seeds: FxHashMap<ValueId, Value> = std::iter::once(product)
        .chain(others)
        .map(zeros)
        .collect::<Option<_>>()?;
    let got = probe(model, trace, &seeds, &[scores], &BUDGET).ok()?;
    got.first()?.to_f64()
}

fn fused(mask: &Value) -> Option<ArrayD<f64>> {
    let data = mask.to_f64()?;
    Some(match mask.dtype {
        Some(DType::Bool) => data.mapv(|seen| if seen == 0.0 { f64::NEG_INFINITY } else { 0.0 }),
        _ => data,
    })
}

/// `[group, head, query, key]` of scores whose queries and keys stand on these axes. Axes that are
/// broadcast along the heads stay one head.
pub(crate) fn by_head(
    data: ArrayD<f64>,
    [rows, columns]: [usize; 2],
    heads: Option<usize>,
) -> Option<Array4<f64>> {
    let rank = data.ndim();
    if rows == columns || rows.max(columns) >= rank {
        return None;
    }
    let mut order: Vec<usize> = (0..rank).filter(|a| *a != rows && *a != columns).collect();
    let lead: Vec<usize> = order.iter().map(|a| data.len_of(Axis(*a))).collect();
    order.extend([rows, columns]);
    let data = data.permuted_axes(order);
    let (queries, keys) = (data.len_of(Axis(rank - 2)), data.len_of(Axis(rank - 1)));
    let count: usize = lead.iter().product();
    let heads = match (heads, lead.last()) {
        (Some(heads), _) if heads > 0 && count.is_multiple_of(heads) => heads,
        (_, Some(1)) | (None, None) => 1,
        _ => return None,
    };
    let data = data.as_standard_layout().into_owned();
    data.into_shape_with_order((count / heads, heads, queries, keys))
        .ok()
}
