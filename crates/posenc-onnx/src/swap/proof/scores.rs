//! What joined the scores of a site: the scores now, less those of the bare graph.

use ndarray::{Array3, Array4, ArrayD, Axis, IxDyn};
use posenc_ir::eval::{Trace, Value};
use posenc_ir::{DType, ValueId};
use posenc_runtime::feeds::Random;
use rustc_hash::FxHashMap;

use super::{Computes, Proof, Run};
use crate::attention::{Operand, Site};
use crate::lane::Lane;
use crate::product::Letters;
use crate::report::SiteCheck;
use crate::rewrite::RewriteError;
use crate::scores::by_head;
use crate::swap::Group;
use crate::swap::formula::{Formula, Scales};
use crate::verify::VerifyError;

/// A score this far below all others is hidden.
const HIDDEN: f64 = 1e3;

/// A site in both graphs.
pub(super) struct Both<'a> {
    pub(super) computes: &'a dyn Computes,
    pub(super) proof: &'a Proof,
    pub(super) bare: &'a (Trace, FxHashMap<ValueId, Value>),
    pub(super) done: &'a (Trace, FxHashMap<ValueId, Value>),
    pub(super) group: &'a Group,
    pub(super) site: usize,
}

impl Both<'_> {
    /// What the scores became less what they were, against the formula; `None` where nothing is
    /// added to scores, or a fused operator shows none.
    pub(super) fn scores(&self) -> Result<Option<SiteCheck>, VerifyError> {
        let (Some(before), Some(after)) = (
            self.proof.bare.1.attention.get(self.site),
            self.proof.done.1.attention.get(self.site),
        ) else {
            return Ok(None);
        };
        let refuse = |why: String| VerifyError::unsupported(&before.name, why);
        let formula = Formula::of(&self.group.new, before.head_dim);
        let formula = formula.map_err(|e: RewriteError| refuse(e.to_string()))?;
        let (Some(formula), Some(scores), Some(product), Some(now), Some(plane)) = (
            formula,
            before.scores,
            before.product,
            after.scores,
            before.plane,
        ) else {
            return Ok(None);
        };
        let mut random = Random::new(0x005c_07e5 + self.site as u64);
        let mut given = vec![];
        // Where content plays no part, products may be of kinds that the evaluator does not run.
        let from = match formula.meets_content() {
            true => vec![before.query.value, before.key.value],
            false => vec![product],
        };
        for value in from {
            let known = self.bare.0.get(value);
            let tensor = known.dims.as_deref().zip(known.dtype);
            let tensor = tensor.and_then(|(dims, dtype)| random.tensor(dtype, dims, -1.0, 1.0));
            let tensor = tensor.ok_or_else(|| refuse("its queries are not known".into()))?;
            if given.iter().all(|(v, _)| *v != value) {
                given.push((value, tensor));
            }
        }
        let run = |model, (trace, seeds): &'_ (Trace, _), wanted| {
            let run = Run {
                site: &before.name,
                model,
                trace,
                seeds,
            };
            self.computes.compute(&run, &given, wanted)
        };
        let of = |data, plane| by_head(data, plane, before.heads);
        let was = of(run(&self.proof.bare.0, self.bare, scores)?, plane);
        let at_product = self.plane_of_product(before).unwrap_or(plane);
        let met = of(run(&self.proof.bare.0, self.bare, product)?, at_product);
        let is = of(run(&self.proof.done.0, self.done, now)?, plane);
        let (Some(was), Some(met), Some(is)) = (was, met, is) else {
            return Err(refuse("the axes of its scores are not known".into()));
        };
        let operand = |o: &Operand| {
            let data = match given.iter().find(|(v, _)| *v == o.value) {
                Some((_, tensor)) => {
                    ArrayD::from_shape_vec(IxDyn(tensor.dims()), tensor.to_f64s()?).ok()?
                }
                None => ArrayD::zeros(self.bare.0.get(o.value).dims.clone()?),
            };
            o.lane.split(data)
        };
        let (queries, keys) = operand(&before.query)
            .zip(operand(&before.key))
            .ok_or_else(|| refuse("the features of its heads cannot be followed".into()))?;
        let compare = Compare {
            formula: &formula,
            scales: self.scales(before, &was, &met),
            epsilon: (self.bare.0.get(product).dtype)
                .and_then(DType::epsilon)
                .unwrap_or(f64::from(f32::EPSILON)),
        };
        let (error, bound) = compare
            .worst(&was, &is, &queries, &keys)
            .ok_or_else(|| refuse("its scores have changed their shape".into()))?;
        Ok(Some(SiteCheck {
            site: before.name.clone(),
            quantity: "scores".to_owned(),
            max_error: (!error.is_nan()).then_some(error),
            bound,
            ok: error <= bound,
        }))
    }

    /// The axes of queries and keys in the product.
    fn plane_of_product(&self, site: &Site) -> Option<[usize; 2]> {
        let (graph, trace) = (self.proof.bare.0.graph(), &self.bare.0);
        let product = site.product?;
        let (id, _) = graph.producer(product)?;
        let turned = graph.node(id).input(0) != Some(site.query.value);
        let Some(letters) = Letters::of(graph, trace, id) else {
            let rank = trace.get(product).dims.as_ref()?.len();
            let [row, column] = [rank.checked_sub(2)?, rank - 1];
            return Some(if turned { [column, row] } else { [row, column] });
        };
        let axis = |operand: usize, lane: &Lane| {
            let letter = letters.operands[operand].get(lane.sequence)?;
            letters.result.iter().position(|c| c == letter)
        };
        let (query, key) = (usize::from(turned), usize::from(!turned));
        Some([axis(query, &site.query.lane)?, axis(key, &site.key.lane)?])
    }

    /// The factor that the product has in itself.
    fn within(&self, site: &Site) -> f64 {
        let graph = self.proof.bare.0.graph();
        let node = site.product.and_then(|v| graph.producer(v));
        let factor = node.and_then(|(id, _)| graph.node(id).float("alpha").ok()?);
        factor.unwrap_or(1.0)
    }

    /// The factors that the bare graph puts on queries, keys and their product.
    fn scales(&self, site: &Site, was: &Array4<f64>, met: &Array4<f64>) -> Scales {
        let (model, found) = &self.proof.bare;
        let (graph, classes) = (model.graph(), &found.classes);
        let before = |of: &Operand| crate::swap::scale::before(graph, classes, &self.bare.0, of);
        // Two visible scores of one query tell the factor, whatever is added to all.
        let mut steps = (0.0, 0.0);
        for (row, product) in was.lanes(Axis(3)).into_iter().zip(met.lanes(Axis(3))) {
            let best = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let seen: Vec<usize> = (0..row.len()).filter(|j| best - row[*j] < HIDDEN).collect();
            for pair in seen.windows(2) {
                steps.0 += (row[pair[1]] - row[pair[0]]).abs();
                steps.1 += (product[pair[1]] - product[pair[0]]).abs();
            }
        }
        Scales {
            query: before(&site.query),
            key: before(&site.key),
            product: self.within(site)
                * if steps.1 > 0.0 {
                    steps.0 / steps.1
                } else {
                    1.0
                },
        }
    }
}

struct Compare<'a> {
    formula: &'a Formula,
    scales: Scales,
    epsilon: f64,
}

impl Compare<'_> {
    /// The largest difference from the formula over visible pairs, and its bound; `None` where
    /// shapes differ.
    fn worst(
        &self,
        was: &Array4<f64>,
        is: &Array4<f64>,
        queries: &Array3<f64>,
        keys: &Array3<f64>,
    ) -> Option<(f64, f64)> {
        let (groups, heads, rows, columns) = was.dim();
        let (slots, kept) = (queries.dim().0, keys.dim().0);
        // A sink adds a column that is no key.
        let columns = columns.min(keys.dim().1);
        let same = is.dim().0 == groups && is.dim().1 == heads && is.dim().2 == rows;
        let fits = slots == groups * heads && slots % kept.max(1) == 0 && rows == queries.dim().1;
        if !same || !fits || is.dim().3 < columns || columns == 0 {
            return None;
        }
        let past = columns.checked_sub(rows)? as i64;
        let (mut worst, mut size) = (0.0f64, 1.0f64);
        for slot in 0..slots {
            let (group, head) = (slot / heads, slot % heads);
            for i in 0..rows {
                let best = (0..columns).map(|j| was[[group, head, i, j]]);
                let best = best.fold(f64::NEG_INFINITY, f64::max);
                let mut shift: Option<f64> = None;
                // The nearest key first, for a constant of its row.
                for j in (0..columns).rev() {
                    let old = was[[group, head, i, j]];
                    if best - old >= HIDDEN || !old.is_finite() {
                        continue;
                    }
                    let distance = j as i64 - i as i64 - past;
                    let (q, k) = (
                        queries.slice(ndarray::s![slot, i, ..]),
                        keys.slice(ndarray::s![slot * kept / slots, j, ..]),
                    );
                    let want = self.formula.at(head, distance, q, k, self.scales);
                    let got = is[[group, head, i, j]] - old;
                    let shift = match self.formula.is_up_to_a_constant() {
                        true => *shift.get_or_insert(got - want),
                        false => 0.0,
                    };
                    let error = (got - shift - want).abs();
                    // NaN stays the worst.
                    worst = if error > worst || error.is_nan() {
                        error
                    } else {
                        worst
                    };
                    size = size.max(old.abs()).max(got.abs()).max(want.abs());
                }
            }
        }
        let terms = (queries.dim().2 + 16) as f64;
        Some((worst, terms * self.epsilon * size))
    }
}
