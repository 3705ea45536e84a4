//! The scores of a site between the product of queries and keys and the softmax: what is added to
//! them, and what they are where queries and keys are zero.

mod path;

use ndarray::{Array3, Array4, ArrayD, Axis};
use posenc_ir::eval::{Budget, Trace, Value, probe};
use posenc_ir::{DType, Graph, Model, Use, ValueId};
use rustc_hash::FxHashMap;

use crate::attention::Site;
use crate::graph::dataflow::{Class, Classes};
use path::origins;
pub(crate) use path::{entries, is_gated, terms, way};
use posenc_encodings::samples::most;

/// Scores this far below the best of a row are hidden.
pub(crate) const HIDDEN: f64 = 1e3;

/// What a mask that hides less takes off at the least.
pub(crate) const MASKED: f64 = 20.0;

/// Elements that a probe of the scores may take.
const BUDGET: Budget = Budget { elements: 1 << 23 };

/// What the softmax of a site sees where queries and keys are zero.
#[derive(Clone, Debug)]
pub(crate) struct Plane {
    /// `[group, head, query, key]`: a group is a sequence of the batch, or a window. Hidden pairs
    /// are −∞.
    pub(crate) bias: Array4<f64>,
    /// Keys that came before the first query.
    pub(crate) past: usize,
}

impl Plane {
    fn new(mut bias: Array4<f64>) -> Self {
        for mut row in bias.lanes_mut(Axis(3)) {
            let seen = row.iter().copied().filter(|v| !v.is_nan());
            let best = seen.fold(f64::NEG_INFINITY, f64::max);
            let all = !best.is_finite();
            row.mapv_inplace(|v| match all || v.is_nan() || best - v > HIDDEN {
                true => f64::NEG_INFINITY,
                false => v,
            });
        }
        // A query that sees nothing, or numbers far below all that others see, fills up a block or
        // is padding: a bias is lost beside them. Where all queries do, nothing is hidden.
        let best = bias.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if !best.is_finite() {
            bias.fill(0.0);
        }
        for mut row in bias.lanes_mut(Axis(3)) {
            if row.iter().all(|v| best - v > HIDDEN) {
                row.fill(f64::NEG_INFINITY);
            }
        }
        let past = bias.dim().3.saturating_sub(bias.dim().2);
        Self { bias, past }
    }

    /// Whether a score is hidden by a mask: far below the best of its row, or of all.
    pub(crate) fn is_hidden(&self, at: [usize; 4]) -> bool {
        self.bias[at] == f64::NEG_INFINITY
    }

    /// Whether every query sees the same number everywhere: no bias, for a softmax.
    pub(crate) fn is_flat(&self) -> bool {
        let near = 1e-9 * most(self.bias.iter());
        self.bias.lanes(Axis(3)).into_iter().all(|row| {
            let mut seen = row.iter().filter(|v| v.is_finite());
            let first = seen.next().copied().unwrap_or(0.0);
            seen.all(|v| (v - first).abs() <= near)
        })
    }

    /// The bias `[head, query, key]` that all groups share: what hides pairs in some of them
    /// alone, as the masks of shifted windows do, is lifted. `None` where groups differ otherwise.
    pub(crate) fn shared(&self) -> Option<Array3<f64>> {
        let [groups, heads, queries, keys] = self.bias.dim().into();
        let first = self.bias.index_axis(Axis(0), 0);
        if (1..groups).all(|g| self.bias.index_axis(Axis(0), g) == first) {
            return Some(first.to_owned());
        }
        let best = self
            .bias
            .fold_axis(Axis(0), f64::NEG_INFINITY, |a, b| a.max(*b));
        let near = 1e-6 * most(best.iter());
        for g in 0..groups {
            for (i, j) in (0..queries).flat_map(|i| (0..keys).map(move |j| (i, j))) {
                let less = |h: usize| match self.is_hidden([g, h, i, j]) {
                    true => f64::INFINITY,
                    false => best[[h, i, j]] - self.bias[[g, h, i, j]],
                };
                let of_first = less(0);
                let masks = of_first <= near || of_first >= MASKED;
                let alike = |h: usize| less(h) == of_first || (less(h) - of_first).abs() <= near;
                if !masks || !(0..heads).all(alike) {
                    return None;
                }
            }
        }
        Some(best)
    }
}

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
    let (Some(product), Some(scores)) = (site.product, site.scores) else {
        let causal = site.mask.causal == Some(true);
        return fused_plane(fused(model.graph(), trace, site)?, site.heads, causal);
    };
    let data = zeroed(model, classes, trace, site, product, scores)?;
    let last = [data.ndim().checked_sub(2)?, data.ndim() - 1];
    let bias = by_head(data, site.plane.unwrap_or(last), site.heads)?;
    // A sink adds a column that is no key.
    let dims = trace.get(site.key.value).dims.as_ref()?;
    let keys = bias.dim().3.min(*dims.get(site.key.lane.sequence)?);
    let bias = bias.slice_move(ndarray::s![.., .., .., ..keys]);
    let empty = bias.is_empty();
    (!empty).then(|| Plane::new(bias))
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

/// The scores with the product and all other terms set to zero.
fn zeroed(
    model: &Model,
    classes: &Classes,
    trace: &Trace,
    site: &Site,
    product: ValueId,
    scores: ValueId,
) -> Option<ArrayD<f64>> {
    let zeros = |v: ValueId| {
        let dims = trace.get(v).dims.clone()?;
        let small = BUDGET.allows(&dims);
        small.then(|| (v, Value::float(ArrayD::<f64>::zeros(dims))))
    };
    let graph = model.graph();
    let others = origins(graph, classes, &terms(graph, classes, site));
    let seeds: FxHashMap<ValueId, Value> = std::iter::once(product)
        .chain(others)
        .map(zeros)
        .collect::<Option<_>>()?;
    let got = probe(model, trace, &seeds, &[scores], &BUDGET).ok()?;
    got.first()?.to_f64()
}

/// Where the bias or mask of a fused operator enters; one that content gates, where it meets the
/// gate: it has the structure there.
fn fused_entry(graph: &Graph, site: &Site) -> Option<Use> {
    let node = graph.node(site.node);
    let mut slots = crate::attention::mask::bias_slots(graph, site.node).iter();
    let slot = slots.find(|slot| node.input(**slot).is_some())?;
    let gate = node.input(*slot).and_then(|v| graph.producer(v));
    let gated = gate.map(|(id, _)| id).filter(|id| {
        let gate = graph.node(*id);
        gate.domain() == "com.microsoft" && gate.op() == "GatedRelativePositionBias"
    });
    Some(match gated {
        Some(gate) => Use::new(gate, 2),
        None => Use::new(site.node, *slot),
    })
}

/// The bias or mask that a fused operator is given.
pub(crate) fn given(graph: &Graph, site: &Site) -> Option<ValueId> {
    let at = fused_entry(graph, site)?;
    graph.node(at.node).input(at.slot())
}

/// The bias or mask of a fused operator; hidden pairs of a bool mask are −∞.
pub(crate) fn fused(graph: &Graph, trace: &Trace, site: &Site) -> Option<ArrayD<f64>> {
    let mask = trace.get(given(graph, site)?);
    match mask.dtype? {
        DType::Bool => {
            let hidden = |seen: f64| if seen == 0.0 { f64::NEG_INFINITY } else { 0.0 };
            Some(mask.to_f64()?.mapv(hidden))
        }
        dtype if dtype.is_float() => mask.to_f64(),
        // Lengths of sequences, or which tokens count.
        _ => None,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of two keys two queries see, by the numbers of both.
    fn seen(bias: [[f64; 2]; 2]) -> [[bool; 2]; 2] {
        let plane = Plane::new(Array4::from_shape_fn([1, 1, 2, 2], |(_, _, i, j)| {
            bias[i][j]
        }));
        [0, 1].map(|i| [0, 1].map(|j| !plane.is_hidden([0, 0, i, j])))
    }

    #[test]
    fn a_query_that_sees_nothing_beside_one_that_does_is_hidden() {
        const NONE: f64 = f64::NEG_INFINITY;
        let first = [[true, true], [false, false]];
        for low in [NONE, f64::NAN, -1e10, f64::from(f32::MIN)] {
            assert_eq!(seen([[0.5, -3.0], [low, low]]), first, "{low}");
            assert_eq!(
                seen([[0.5, low], [low, 0.0]]),
                [[true, false], [false, true]]
            );
            // Where all are alike, nothing is told from anything.
            assert_eq!(seen([[low, low], [low, low]]), [[true; 2]; 2], "{low}");
        }
        assert_eq!(seen([[0.5, -3.0], [-900.0, -901.0]]), [[true; 2]; 2]);
    }
}
