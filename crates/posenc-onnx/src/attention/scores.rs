//! The scores of a site between the product of queries and keys and the softmax: the terms
//! added to them, and their values where queries and keys are zero.

mod fused;
mod path;

use ndarray::{Array4, ArrayD, Axis};
use posenc_ir::eval::{Budget, Trace, Value, probe};
use posenc_ir::{Model, Node, ValueId};
use rustc_hash::FxHashMap;

use crate::attention::plane::Plane;
use crate::attention::site::Site;
use crate::graph::dataflow::{Class, Classes};
use fused::{added, fused_entry};
pub(crate) use fused::{fused, given};
pub(crate) use path::{entries, is_gated, product_path, products, terms};
use path::{gated, origins};

/// Elements that a probe of the scores may take.
const BUDGET: Budget = Budget { elements: 1 << 23 };

/// Whether a value is zero throughout, whatever is fed.
pub(crate) fn is_zero(classes: &Classes, trace: &Trace, value: ValueId) -> bool {
    let class = classes.of_value(value);
    let fed = [Class::CONTENT, Class::PADDING, Class::POSITION];
    if fed.iter().any(|one| class.has(*one)) {
        return false;
    }
    let known = trace.get(value).to_f64();
    known.is_some_and(|data| data.iter().all(|v| *v == 0.0))
}

/// What the softmax of a site sees where queries and keys are zero, in a run of the graph.
///
/// Of a fused operator, its bias or mask input and what it hides by itself.
pub(crate) fn plane(model: &Model, classes: &Classes, trace: &Trace, site: &Site) -> Option<Plane> {
    plane_with(model, classes, trace, site, &FxHashMap::default())
}

/// The same in a run with other inputs.
pub(crate) fn plane_with(
    model: &Model,
    classes: &Classes,
    trace: &Trace,
    site: &Site,
    inputs: &FxHashMap<ValueId, Value>,
) -> Option<Plane> {
    let Some(scores) = site.scores else {
        let causal = site.mask.causal == Some(true);
        let graph = model.graph();
        let entry = fused_entry(graph, site)?;
        let value = graph.node(entry.node).input(entry.slot())?;
        let data = if gated(graph, classes, trace, site, entry).is_some() {
            zeroed((model, classes, trace), site, value, inputs)?
        } else if inputs.is_empty() {
            added(trace.get(value))?
        } else {
            added(&probe(model, trace, inputs, &[value], &BUDGET).ok()?.pop()?)?
        };
        return fused_plane(data, site.heads, causal);
    };
    let data = zeroed((model, classes, trace), site, scores, inputs)?;
    let last = [data.ndim().checked_sub(2)?, data.ndim() - 1];
    let bias = by_head(data, site.plane.unwrap_or(last), site.heads)?;
    // A sink adds a column that is no key.
    let keys = bias.dim().3.min(site.keys(trace)?);
    let bias = bias.slice_move(ndarray::s![.., .., .., ..keys]);
    if bias.is_empty() {
        return None;
    }
    let plane = Plane::new(bias);
    // Slots of a cache behind the last token are empty.
    let filled = site.buffer.and_then(|_| plane.without_empty());
    Some(filled.unwrap_or(plane))
}

/// The same of a fused operator that is given this bias or mask, and may hide later keys itself.
pub(crate) fn fused_plane(data: ArrayD<f64>, heads: Option<usize>, causal: bool) -> Option<Plane> {
    let rank = data.ndim();
    let plane = [rank.checked_sub(2)?, rank - 1];
    let mut bias = by_head(data, plane, heads)?;
    let (queries, keys) = (bias.dim().2, bias.dim().3);
    if queries == 0 || keys == 0 {
        return None;
    }
    if causal {
        let past = keys.saturating_sub(queries);
        for i in 0..queries {
            let later = (i + past + 1).min(keys);
            let mut hidden = bias.slice_mut(ndarray::s![.., .., i, later..]);
            hidden.fill(f64::NEG_INFINITY);
        }
    }
    Some(Plane::new(bias))
}

/// The scores, or the bias of a fused operator, with the product and all other terms set to zero.
fn zeroed(
    (model, classes, trace): (&Model, &Classes, &Trace),
    site: &Site,
    scores: ValueId,
    inputs: &FxHashMap<ValueId, Value>,
) -> Option<ArrayD<f64>> {
    let zeros = |v: ValueId| {
        let dims = trace.get(v).dims.clone()?;
        let small = BUDGET.allows(&dims);
        small.then(|| (v, Value::float(ArrayD::<f64>::zeros(dims))))
    };
    let graph = model.graph();
    // Integers that stand for zeros are known where they become numbers again.
    let dequantized = |v: ValueId| {
        let uses = graph.uses(v).iter().map(|at| graph.node(at.node));
        let uses: Vec<&Node> = uses.collect();
        let all = !uses.is_empty() && uses.iter().all(|node| node.is("DequantizeLinear"));
        let outputs = uses.iter().filter_map(|node| node.output(0));
        if all { outputs.collect() } else { vec![v] }
    };
    let others = origins(graph, classes, &terms(graph, classes, site));
    let mut seeds: FxHashMap<ValueId, Value> = site
        .product
        .into_iter()
        .chain(others)
        .flat_map(dequantized)
        .map(zeros)
        .collect::<Option<_>>()?;
    seeds.extend(inputs.iter().map(|(v, value)| (*v, value.clone())));
    let got = probe(model, trace, &seeds, &[scores], &BUDGET).ok()?;
    got.first()?.to_f64()
}

/// `[group, head, query, key]` of scores whose queries and keys are on these axes. Axes that are
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
        (_, Some(1) | None) => 1,
        _ => return None,
    };
    let data = data.as_standard_layout().into_owned();
    data.into_shape_with_order((count / heads, heads, queries, keys))
        .ok()
}
