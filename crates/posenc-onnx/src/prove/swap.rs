//! The proof of a swap: what a site's scores became, less what they were without any encoding, is
//! what the formula in f64 says.
//!
//! Both graphs are cut from the same queries and keys to the scores, and fed the same random
//! numbers. Tables that start from zeros are replaced by random ones for the proof, so that it
//! shows the wiring and not that nothing was added.

mod pairs;
mod rows;
mod scores;
#[cfg(test)]
mod tests;
mod values;

use ndarray::{ArrayD, IxDyn};
use posenc_ir::eval::{Budget, Trace, Value, probe};
use posenc_ir::{CutInput, DType, Dim, Model, Tensor, ValueId};
use posenc_runtime::{Backend, ModelSource, Options};
use rustc_hash::FxHashMap;

use crate::attention::Site;
use crate::detect::finding::Finding;
use crate::detect::{Detection, Survey};
use crate::graph::ports::Lengths;
use crate::plan::swap::spec::EncodingSpec;
use crate::plan::swap::{Group, SwapPlan};
use crate::prove::VerifyError;
use crate::prove::bound::Worst;
use crate::prove::trial::trial_run;
use crate::report::SiteCheck;
use scores::{Both, Known};

/// A graph without encodings at the sites, and the same with what was put in.
#[derive(Clone, Debug)]
pub struct Proof {
    pub(crate) bare: (Model, Detection),
    pub(crate) done: (Model, Detection),
    /// What was found in the second.
    pub(crate) shown: Survey,
    pub(crate) asked: SwapPlan,
    /// The same for other branches of the model.
    pub(crate) beside: Vec<Self>,
}

/// Tokens of the longer of the two runs: far enough for the last bucket of T5.
const LONG: usize = 200;

/// Multiplications that go into vectors of distances in it.
const WORK: usize = 1 << 29;

/// Elements of a value of these runs.
const BUDGET: Budget = Budget { elements: 1 << 22 };

/// The most that constants of a cut may take.
const CONSTANTS: usize = 1 << 28;

/// Computes values of a model from others that are given.
trait Computes {
    fn compute(
        &self,
        run: &Run<'_>,
        given: &[(ValueId, Tensor)],
        wanted: ValueId,
    ) -> Result<ArrayD<f64>, VerifyError>;
}

/// A model in a run of known lengths.
struct Run<'a> {
    site: &'a str,
    model: &'a Model,
    trace: &'a Trace,
    seeds: &'a FxHashMap<ValueId, Value>,
}

/// The evaluator, in f64.
struct Evaluator;

impl Computes for Evaluator {
    fn compute(
        &self,
        run: &Run<'_>,
        given: &[(ValueId, Tensor)],
        wanted: ValueId,
    ) -> Result<ArrayD<f64>, VerifyError> {
        let seeds = given
            .iter()
            .map(|(v, t)| (*v, Value::from_tensor(t)))
            .collect();
        let got = probe(run.model, run.trace, &seeds, &[wanted], &BUDGET);
        let got = got.ok().and_then(|v| v.first()?.to_f64());
        got.ok_or_else(|| VerifyError::unsupported(run.site, "the scores cannot be evaluated"))
    }
}

/// A runtime.
struct Runtime<'a>(&'a dyn Backend);

impl Computes for Runtime<'_> {
    fn compute(
        &self,
        run: &Run<'_>,
        given: &[(ValueId, Tensor)],
        wanted: ValueId,
    ) -> Result<ArrayD<f64>, VerifyError> {
        let input = |(value, tensor): &(ValueId, Tensor)| CutInput {
            value: *value,
            dtype: tensor.dtype(),
            dims: tensor.dims().iter().map(|d| Dim::Known(*d)).collect(),
        };
        let inputs: Vec<CutInput> = given.iter().map(input).collect();
        let cut = run.model.cut(&inputs, &[wanted], CONSTANTS)?;
        let graph = run.model.graph();
        let mut feeds: Vec<(String, Tensor)> = vec![];
        for (value, tensor) in given {
            feeds.push((graph.name(*value).to_owned(), tensor.clone()));
        }
        for port in &cut.inputs[given.len()..] {
            let known = run.seeds.get(&port.value).and_then(feed);
            let known = known.ok_or_else(|| {
                let why = format!("nothing is known of the input {}", port.name);
                VerifyError::unsupported(run.site, why)
            })?;
            feeds.push((port.name.clone(), known));
        }
        let source = ModelSource::Bytes {
            model: &cut.bytes,
            folder: None,
        };
        let failed = |e| VerifyError::runtime(run.site, e);
        let mut session = self.0.load(source, &Options::default()).map_err(failed)?;
        let feeds: Vec<(&str, Tensor)> =
            feeds.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        let got = session.run(&feeds, &[]).map_err(failed)?;
        let first = got.into_iter().next().map(|(_, tensor)| tensor);
        let numbers = first.as_ref().and_then(array);
        numbers.ok_or_else(|| VerifyError::unsupported(run.site, "the runtime gave no numbers"))
    }
}

/// What became of a quantity of a site.
fn check(site: &Site, quantity: &str, worst: &Worst) -> SiteCheck {
    SiteCheck {
        site: site.name.clone(),
        quantity: quantity.to_owned(),
        max_error: worst.error,
        bound: worst.bound,
        ok: worst.ok(),
    }
}

/// The numbers of a tensor.
fn array(tensor: &Tensor) -> Option<ArrayD<f64>> {
    ArrayD::from_shape_vec(IxDyn(tensor.dims()), tensor.to_f64s()?).ok()
}

/// What is fed for a value of a trial run.
fn feed(value: &Value) -> Option<Tensor> {
    let (dtype, dims) = (value.dtype?, value.dims.as_deref()?);
    let count = dims.iter().product();
    let values = match value.to_f64() {
        Some(data) => data.iter().copied().collect(),
        None => vec![0.0; count],
    };
    Some(match dtype {
        DType::Bool => {
            let values: Vec<bool> = values.iter().map(|v| *v != 0.0).collect();
            Tensor::from_bool(dims, &values)
        }
        _ => Tensor::from_f64(dtype, dims, &values),
    })
}

impl Proof {
    /// Whether nothing was put in, so that there is nothing to compare.
    pub fn is_empty(&self) -> bool {
        let rotation = |g: &Group| matches!(g.new, EncodingSpec::Rope { .. });
        self.asked.groups.iter().all(rotation) && self.beside.iter().all(Self::is_empty)
    }

    /// Compares the scores and the embeddings that a runtime computes with the formula, site by
    /// site. Rotations are for [`check_rope`](crate::prove::check_rope).
    ///
    /// # Errors
    /// Where a site cannot be cut out, or the runtime does not run it.
    pub fn check(&self, backend: &dyn Backend) -> Result<Vec<SiteCheck>, VerifyError> {
        self.with(&Runtime(backend))
    }

    /// The same in the evaluator.
    pub(crate) fn evaluate(&self) -> Result<Vec<SiteCheck>, VerifyError> {
        self.with(&Evaluator)
    }

    fn with(&self, computes: &dyn Computes) -> Result<Vec<SiteCheck>, VerifyError> {
        let mut checks = self.own(computes)?;
        for other in &self.beside {
            checks.extend(other.with(computes)?);
        }
        Ok(checks)
    }

    /// The checks of one branch.
    fn own(&self, computes: &dyn Computes) -> Result<Vec<SiteCheck>, VerifyError> {
        let mut checks = vec![];
        let lengths = self.lengths();
        for (n, at) in lengths.into_iter().enumerate() {
            let bare = trial_run(&self.bare.0, &self.bare.1, at, &BUDGET);
            let done = trial_run(&self.done.0, &self.done.1, at, &BUDGET);
            for group in &self.asked.groups {
                let mut known = Known::default();
                // The longer run is for what is far, which one site shows.
                let sites = if n == 0 {
                    &group.sites[..]
                } else {
                    &group.sites[..1]
                };
                for site in sites {
                    let both = Both {
                        computes,
                        proof: self,
                        bare: &bare,
                        done: &done,
                        group,
                        site: *site,
                    };
                    checks.extend(both.scores(&mut known)?);
                    checks.extend(values::check(&both)?);
                }
                checks.extend(rows::check(computes, self, &done, at.past, group)?);
            }
        }
        Ok(checks)
    }

    /// Numbers that a pair of tokens has at the most: one for each head, or a vector; twice as
    /// many where distances are told apart before they are brought to pairs.
    fn numbers(&self) -> usize {
        let of = |group: &Group| {
            let sites = group
                .sites
                .iter()
                .filter_map(|i| self.done.1.attention.get(*i));
            let vectors = matches!(group.new, EncodingSpec::Shaw { .. });
            sites
                .map(|site| {
                    site.heads
                        .max(site.head_dim.filter(|_| vectors))
                        .unwrap_or(1)
                })
                .max()
        };
        2 * self
            .asked
            .groups
            .iter()
            .filter_map(of)
            .max()
            .unwrap_or(1)
            .max(1)
    }

    /// Tokens that the longer run may have.
    fn longest(&self) -> usize {
        let work = |group: &Group| match group.new {
            EncodingSpec::TransformerXl {
                heads,
                head_dim,
                dim,
                ..
            } => heads.saturating_mul(head_dim).saturating_mul(2 * dim),
            _ => 0,
        };
        let work = self.asked.groups.iter().map(work);
        let work = work.fold(0, usize::saturating_add);
        let pairs = (BUDGET.elements / self.numbers()).isqrt();
        LONG.min(pairs).min(WORK / work.max(1))
    }

    /// The content that a site's absolute encoding is added to, and the sum.
    fn added(&self, site: usize) -> Option<(ValueId, ValueId)> {
        let own = |f: &&Finding| f.sites.contains(&site) && f.encoding.is_absolute();
        let entry = self
            .shown
            .findings
            .iter()
            .find(own)?
            .entries
            .first()
            .copied()?;
        let node = self.done.0.graph().node(entry.node);
        let content = node.input(1usize.checked_sub(entry.slot())?)?;
        Some((content, node.output(0).filter(|_| node.is("Add"))?))
    }

    /// The lengths of the runs: that of detection, and a longer one where the model takes it.
    fn lengths(&self) -> Vec<Lengths> {
        let (bare, done) = (&self.bare.1, &self.done.1);
        let wanted = Lengths {
            batch: 1,
            sequence: self.longest(),
            ..done.lengths
        };
        let longer = done.ports.fit(wanted);
        let shortest = done.limits.iter().map(|l| l.length).min();
        let fits = longer == wanted
            && wanted.sequence > done.lengths.sequence
            && bare.ports.fit(wanted) == wanted
            && shortest.is_none_or(|most| longer.past + longer.sequence <= most)
            && !done.ports.has_free_content();
        let mut all = vec![done.lengths];
        all.extend(fits.then_some(longer));
        all
    }
}
