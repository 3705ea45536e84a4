//! What joined the scores of a site: the scores now, less those of the bare graph.
//!
//! Where scores are computed inside of an operator, it is the bias that the operator is given, less
//! the mask that it was given before.

use ndarray::{Array3, Array4, ArrayD, Axis};
use posenc_ir::eval::{Trace, Value};
use posenc_ir::{DType, Tensor, ValueId};
use posenc_runtime::feeds::Random;
use rustc_hash::FxHashMap;

use super::pairs::Pairs;
use super::{Computes, Proof, Run, array};
use crate::attention::scores::{HIDDEN, by_head, fused, fused_plane, given};
use crate::attention::{Operand, Site};
use crate::graph::lane::Lane;
use crate::graph::product::Letters;
use crate::plan::swap::Group;
use crate::prove::VerifyError;
use crate::prove::formula::{Formula, Scales};
use crate::report::SiteCheck;

/// A site in both graphs.
pub(crate) struct Both<'a> {
    pub(crate) computes: &'a dyn Computes,
    pub(crate) proof: &'a Proof,
    pub(crate) bare: &'a (Trace, FxHashMap<ValueId, Value>),
    pub(crate) done: &'a (Trace, FxHashMap<ValueId, Value>),
    pub(crate) group: &'a Group,
    pub(crate) site: usize,
}

/// The formula of a group, made once for sites of one width.
#[derive(Default)]
pub(crate) struct Known(Option<(Option<usize>, Option<Formula>)>);

impl Known {
    /// `None` where nothing is added to the scores.
    fn of(&mut self, group: &Group, site: &Site) -> Result<Option<&mut Formula>, VerifyError> {
        let same = |known: &(Option<usize>, _)| known.0 == site.head_dim;
        if !self.0.as_ref().is_some_and(same) {
            let formula = Formula::of(&group.new, site.head_dim);
            let formula =
                formula.map_err(|e| VerifyError::unsupported(&site.name, e.to_string()))?;
            self.0 = Some((site.head_dim, formula));
        }
        Ok(self.0.as_mut().and_then(|known| known.1.as_mut()))
    }
}

impl Both<'_> {
    /// What the scores became less what they were, against the formula; nothing where nothing is
    /// added to scores.
    pub(crate) fn scores(&self, known: &mut Known) -> Result<Vec<SiteCheck>, VerifyError> {
        let (before, after) = self.sites()?;
        let Some(formula) = known.of(self.group, before)? else {
            return Ok(vec![]);
        };
        let pairs = match before.scores {
            Some(scores) => self.spelled_out([before, after], formula, scores)?,
            None => self.fused(before, after)?,
        };
        formula.reach(pairs.farthest());
        let [seen, hidden] = pairs
            .against(formula)
            .ok_or_else(|| unsupported(before, "its scores have changed their shape"))?;
        let mask = (hidden.count > 0).then(|| super::check(before, "mask", &hidden));
        let scores = super::check(before, "scores", &seen);
        // A summary shows the last of those that are right: numbers, not depths.
        Ok(mask.into_iter().chain([scores]).collect())
    }

    /// The site in the bare graph and in the one with what was put in.
    pub(crate) fn sites(&self) -> Result<(&Site, &Site), VerifyError> {
        let (bare, done) = (&self.proof.bare.1, &self.proof.done.1);
        let both = bare
            .attention
            .get(self.site)
            .zip(done.attention.get(self.site));
        both.ok_or_else(|| {
            let site = format!("attention {}", self.site);
            VerifyError::unsupported(site, "it is found no more")
        })
    }

    /// The scores of attention in plain operators, for the same queries and keys, or for the same
    /// product where content plays no part: it may be of a kind that the evaluator does not run.
    fn spelled_out(
        &self,
        [before, after]: [&Site; 2],
        formula: &Formula,
        scores: ValueId,
    ) -> Result<Pairs, VerifyError> {
        let refuse = |why: &str| unsupported(before, why);
        let (Some(product), Some(now), Some(plane)) = (before.product, after.scores, before.plane)
        else {
            return Err(refuse("its scores cannot be followed"));
        };
        let given = match formula.meets_content() {
            true => self.random(before, &[before.query.value, before.key.value])?,
            false => self.random(before, &[product])?,
        };
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
            return Err(refuse("the axes of its scores are not known"));
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
            .ok_or_else(|| refuse("the features of its heads cannot be followed"))?;
        let epsilon = |value| {
            let dtype: Option<DType> = self.bare.0.get(value).dtype;
            dtype.and_then(DType::epsilon)
        };
        let epsilon = [product, scores].into_iter().filter_map(epsilon);
        let epsilon = epsilon.reduce(f64::max);
        Ok(Pairs {
            scales: self.scales(before, &was, &met),
            epsilon: epsilon.unwrap_or(f64::from(f32::EPSILON)),
            was,
            is,
            queries,
            keys,
        })
    }

    /// The bias that an operator is given, and the mask that it had.
    fn fused(&self, before: &Site, after: &Site) -> Result<Pairs, VerifyError> {
        let refuse = || unsupported(before, "the bias that was put in cannot be evaluated");
        let (bare, done) = (&self.proof.bare, &self.proof.done);
        let (trace, seeds) = self.done;
        let value = given(done.0.graph(), after).ok_or_else(refuse)?;
        let run = Run {
            site: &before.name,
            model: &done.0,
            trace,
            seeds,
        };
        // A mask of content is any mask.
        let old = given(bare.0.graph(), before);
        let content = old.filter(|v| {
            let known = self.bare.0.get(*v);
            known.data.is_none() && known.dtype.is_some_and(DType::is_float)
        });
        let masks = match content.filter(|v| *v != value) {
            Some(mask) => self.random(before, &[mask])?,
            None => vec![],
        };
        let data = match done.0.graph().producer(value) {
            Some(_) => self.computes.compute(&run, &masks, value)?,
            None => trace.get(value).to_f64().ok_or_else(refuse)?,
        };
        // What the operator hides by itself has a bias all the same.
        let plane = |data| fused_plane(data, before.heads, false);
        let is = plane(data).ok_or_else(refuse)?.bias;
        let (groups, heads, rows, columns) = is.dim();
        // One head would stand for all.
        if Some(heads) != before.heads {
            return Err(refuse());
        }
        // A mask of lengths stands beside the bias.
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
            let tensor = tensor.ok_or_else(|| unsupported(site, "its queries are not known"))?;
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
        let before =
            |of: &Operand| crate::attention::scale::before(graph, classes, &self.bare.0, of);
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

pub(crate) fn unsupported(site: &Site, why: &str) -> VerifyError {
    VerifyError::unsupported(&site.name, why)
}
