//! What the inserted encoding adds to the scores of a site: the scores, less those of the bare graph.
//!
//! Where an operator computes the scores inside, it is the operator's bias input, less the mask that
//! was its input before.

use ndarray::{Array3, Array4, ArrayD, Axis};
use posenc_ir::{DType, Tensor, ValueId};
use posenc_runtime::feeds::Random;

use super::pairs::Pairs;
use super::site::{SwappedSite, Traced, unsupported};
use crate::attention::plane::HIDDEN;
use crate::attention::scores::{by_head, fused, fused_plane, given};
use crate::attention::{Operand, Site};
use crate::graph::lane::Lane;
use crate::graph::product::Letters;
use crate::plan::swap::Group;
use crate::prove::VerifyError;
use crate::prove::compute::{TrialRun, array};
use crate::prove::formula::{Formula, Scales};
use crate::report::SiteCheck;

/// The formula of a group, made once for all sites with the same head dimension.
#[derive(Default)]
pub(crate) struct CachedFormula(Option<Option<Formula>>);

impl CachedFormula {
    /// `None` where nothing is added to the scores.
    fn of(&mut self, group: &Group, site: &Site) -> Result<Option<&mut Formula>, VerifyError> {
        if self.0.is_none() {
            let formula = Formula::of(&group.new);
            let formula =
                formula.map_err(|e| VerifyError::unsupported(&site.name, e.to_string()))?;
            self.0 = Some(formula);
        }
        Ok(self.0.as_mut().and_then(Option::as_mut))
    }
}

/// Compares the difference between the scores with and without the inserted encoding with the
/// formula; empty where nothing is added to scores.
pub(crate) fn check(
    site: &SwappedSite<'_>,
    formula: &mut CachedFormula,
) -> Result<Vec<SiteCheck>, VerifyError> {
    let (before, after) = site.sites()?;
    let Some(formula) = formula.of(site.group, before)? else {
        return Ok(vec![]);
    };
    let pairs = match before.scores {
        Some(scores) => site.in_operators([before, after], formula, scores)?,
        None => site.in_one_operator(before, after)?,
    };
    formula.reach(pairs.farthest());
    let [seen, hidden] = pairs.against(formula).ok_or_else(|| {
        unsupported(
            before,
            "inserting the encoding would change the shape of the scores",
        )
    })?;
    let mask = (hidden.count > 0).then(|| hidden.check(&before.name, "mask"));
    let symmetry = pairs.symmetry(formula);
    let symmetry = symmetry.map(|worst| worst.check(&before.name, "symmetry"));
    // The summary of a report shows the last check that passed: an error, not a depth.
    let scores = seen.check(&before.name, "scores");
    let checks = mask.into_iter().chain(symmetry);
    Ok(checks.chain([scores]).collect())
}

impl SwappedSite<'_> {
    /// The scores of attention in plain operators, for the same queries and keys; or, where the
    /// formula does not depend on content, for the same product, which may be an operator that the
    /// evaluator does not support.
    fn in_operators(
        &self,
        [before, after]: [&Site; 2],
        formula: &Formula,
        scores: ValueId,
    ) -> Result<Pairs, VerifyError> {
        let refuse = |why: &str| unsupported(before, why);
        let (Some(product), Some(now), Some(plane)) = (before.product, after.scores, before.plane)
        else {
            return Err(refuse("cannot follow the scores"));
        };
        let given = if formula.meets_content() {
            self.random(before, &[before.query.value, before.key.value])?
        } else {
            self.random(before, &[product])?
        };
        let run = |model, (trace, seeds): &Traced, wanted| {
            let run = TrialRun {
                site: &before.name,
                model,
                trace,
                seeds,
            };
            self.by.compute(&run, &given, wanted)
        };
        let by_head = |data, plane| by_head(data, plane, before.heads);
        let was = by_head(run(&self.proof.bare.0, self.bare, scores)?, plane);
        let at_product = self.plane_of_product(before).unwrap_or(plane);
        let products = by_head(run(&self.proof.bare.0, self.bare, product)?, at_product);
        let is = by_head(run(&self.proof.swapped.0, self.swapped, now)?, plane);
        let (Some(was), Some(products), Some(is)) = (was, products, is) else {
            return Err(refuse("the axes of the scores are unknown"));
        };
        let operand = |o: &Operand| {
            let data = match given.iter().find(|(v, _)| *v == o.value) {
                Some((_, tensor)) => array(tensor)?,
                None => ArrayD::zeros(self.bare.0.get(o.value).dims.clone()?),
            };
            o.lane.split(data)
        };
        let (queries, keys) = operand(&before.query)
            .zip(operand(&before.key))
            .ok_or_else(|| refuse("cannot follow the features of the heads"))?;
        let epsilon = |value| {
            let dtype: Option<DType> = self.bare.0.get(value).dtype;
            dtype.and_then(DType::epsilon)
        };
        let epsilon = [product, scores].into_iter().filter_map(epsilon);
        let epsilon = epsilon.reduce(f64::max);
        let scales = self
            .scales(before, &was, &products)
            .ok_or_else(|| refuse("cannot tell its keys from an attention sink"))?;
        Ok(Pairs {
            scales,
            epsilon: epsilon.unwrap_or(f64::from(f32::EPSILON)),
            was,
            is,
            queries,
            keys,
        })
    }

    /// The bias input of an operator, and its mask before.
    fn in_one_operator(&self, before: &Site, after: &Site) -> Result<Pairs, VerifyError> {
        let refuse = || unsupported(before, "cannot evaluate the inserted bias");
        let (bare, swapped) = (&self.proof.bare, &self.proof.swapped);
        let (trace, seeds) = self.swapped;
        let value = given(swapped.0.graph(), after).ok_or_else(refuse)?;
        let run = TrialRun {
            site: &before.name,
            model: &swapped.0,
            trace,
            seeds,
        };
        // A mask that is content may be any mask.
        let old = given(bare.0.graph(), before);
        let content = old.filter(|v| {
            let known = self.bare.0.get(*v);
            known.data.is_none() && known.dtype.is_some_and(DType::is_float)
        });
        let masks = match content.filter(|v| *v != value) {
            Some(mask) => self.random(before, &[mask])?,
            None => vec![],
        };
        let data = match swapped.0.graph().producer(value) {
            Some(_) => self.by.compute(&run, &masks, value)?,
            None => trace.get(value).to_f64().ok_or_else(refuse)?,
        };
        // Pairs that the operator masks itself have a bias too.
        let plane = |data| fused_plane(data, before.heads, false);
        let is = plane(data).ok_or_else(refuse)?.bias;
        let (groups, heads, rows, columns) = is.dim();
        // A bias with another number of heads is broadcast.
        if Some(heads) != before.heads {
            return Err(refuse());
        }
        // A mask of lengths is an input of its own.
        let mask = match masks.first() {
            Some((_, mask)) => array(mask),
            None => fused(bare.0.graph(), &self.bare.0, before),
        };
        let mask = mask.and_then(plane);
        let mask = mask.map_or_else(|| Array4::zeros((1, 1, rows, columns)), |mask| mask.bias);
        let was = mask.broadcast(is.dim());
        let nothing = |tokens| Array3::zeros((groups * heads, tokens, 0));
        Ok(Pairs {
            was: was.ok_or_else(refuse)?.to_owned(),
            queries: nothing(rows),
            keys: nothing(columns),
            scales: Scales {
                query: 1.0,
                key: 1.0,
                product: 1.0,
            },
            epsilon: trace
                .get(value)
                .dtype
                .and_then(DType::epsilon)
                .unwrap_or(f64::from(f32::EPSILON)),
            is,
        })
    }

    /// Random numbers for values of the bare graph.
    fn random(
        &self,
        site: &Site,
        values: &[ValueId],
    ) -> Result<Vec<(ValueId, Tensor)>, VerifyError> {
        let mut random = Random::new(0x005c_07e5 + self.site as u64);
        let mut given: Vec<(ValueId, Tensor)> = vec![];
        for value in values {
            let known = self.bare.0.get(*value);
            let tensor = known.dims.as_deref().zip(known.dtype);
            let tensor = tensor.and_then(|(dims, dtype)| random.tensor(dtype, dims, -1.0, 1.0));
            let tensor = tensor
                .ok_or_else(|| unsupported(site, "cannot generate random queries and keys"))?;
            if given.iter().all(|(v, _)| v != value) {
                given.push((*value, tensor));
            }
        }
        Ok(given)
    }

    /// The axes of queries and keys in the product.
    fn plane_of_product(&self, site: &Site) -> Option<[usize; 2]> {
        let (graph, trace) = (self.proof.bare.0.graph(), &self.bare.0);
        let product = site.product?;
        let (id, _) = graph.producer(product)?;
        let transposed = graph.node(id).input(0) != Some(site.query.value);
        let Some(letters) = Letters::of(graph, trace, id) else {
            let rank = trace.get(product).dims.as_ref()?.len();
            let [row, column] = [rank.checked_sub(2)?, rank - 1];
            return Some(if transposed {
                [column, row]
            } else {
                [row, column]
            });
        };
        let axis = |operand: usize, lane: &Lane| {
            let letter = letters.operands[operand].get(lane.sequence)?;
            letters.result.iter().position(|c| c == letter)
        };
        let (query, key) = (usize::from(transposed), usize::from(!transposed));
        Some([axis(query, &site.query.lane)?, axis(key, &site.key.lane)?])
    }

    /// The factor that the product's operator applies.
    fn factor_of_product(&self, site: &Site) -> f64 {
        let graph = self.proof.bare.0.graph();
        let node = site.product.and_then(|v| graph.producer(v));
        let factor = node.and_then(|(id, _)| graph.node(id).float("alpha").ok()?);
        factor.unwrap_or(1.0)
    }

    /// The factors that the bare graph applies to queries, keys and their product.
    fn scales(&self, site: &Site, was: &Array4<f64>, products: &Array4<f64>) -> Option<Scales> {
        let (model, found) = &self.proof.bare;
        let (graph, classes) = (model.graph(), &found.classes);
        let before =
            |of: &Operand| crate::attention::scale::before(graph, classes, &self.bare.0, of);
        // Two visible scores of one query determine the factor, whatever is added to all.
        let mut steps = (0.0, 0.0);
        for (row, product) in was.lanes(Axis(3)).into_iter().zip(products.lanes(Axis(3))) {
            let best = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            // Columns after the keys are sinks.
            let keys = row.len().min(product.len());
            let seen: Vec<usize> = (0..keys).filter(|j| best - row[*j] < HIDDEN).collect();
            for pair in seen.windows(2) {
                steps.0 += (row[pair[1]] - row[pair[0]]).abs();
                steps.1 += (product.get(pair[1])? - product.get(pair[0])?).abs();
            }
        }
        let product = if steps.1 > 0.0 {
            steps.0 / steps.1
        } else {
            1.0
        };
        Some(Scales {
            query: before(&site.query),
            key: before(&site.key),
            product: self.factor_of_product(site) * product,
        })
    }
}
