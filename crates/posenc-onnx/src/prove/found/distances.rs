//! Encodings as the softmax sees them: with equal queries and equal keys, the scores of two pairs may only differ by the
//! formula of a bias, or where the formula gives them different rows of a table.

use std::cell::OnceCell;
use std::collections::hash_map::Entry;

use ndarray::Array4;
use posenc_ir::{DType, Tensor, ValueId};
use posenc_runtime::Backend;
use rustc_hash::FxHashMap;

use super::pair::PairRow;
use super::row::precision;
use crate::attention::Site;
use crate::attention::plane::HIDDEN;
use crate::attention::scores::{by_head, fused_plane, given, is_gated, terms};
use crate::detect::context::Context;
use crate::detect::finding::{Encoding, Finding};
use crate::graph::dataflow::Class;
use crate::graph::ports::Lengths;
use crate::graph::region::above;
use crate::prove::bound::{ROUNDINGS, Worst};
use crate::prove::compute::{BUDGET, Compute, Runtime, TrialRun};
use crate::prove::trial::trial_run;
use crate::report::SiteCheck;
use posenc_encodings::bias::At;
use posenc_ir::eval::{Trace, Value};

/// Tokens of the run: more than detection runs, and enough for the last bucket of T5.
const LONG: usize = 200;

/// Encodings that the scores of equal tokens show.
pub(super) struct Distances<'a> {
    context: &'a Context<'a>,
    findings: Vec<&'a Finding>,
    run: OnceCell<(Trace, FxHashMap<ValueId, Value>)>,
}

impl<'a> Distances<'a> {
    /// Those of these findings.
    pub(super) fn new(context: &'a Context<'a>, findings: Vec<&'a Finding>) -> Self {
        Self {
            context,
            findings,
            run: OnceCell::new(),
        }
    }

    /// The sites that have one, in order.
    pub(super) fn sites(&self) -> Vec<usize> {
        let all = self.findings.iter().flat_map(|f| &f.sites);
        let mut all: Vec<usize> = all.copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// What is compared at a site, in words.
    pub(super) fn what(&self, site: usize) -> String {
        format!("{} of {}", self.kinds(site), self.context.site(site).name)
    }

    fn kinds(&self, site: usize) -> String {
        let own = self.at(site).map(|f| f.encoding.kind().to_string());
        own.collect::<Vec<_>>().join(", ")
    }

    /// The encodings at a site with their parameters.
    fn words(&self, site: usize) -> String {
        let own = self.at(site).map(|f| {
            let kind = f.encoding.kind();
            format!("{kind}: {}", kind.describe(&f.encoding.params()))
        });
        own.collect::<Vec<_>>().join("; ")
    }

    fn at(&self, site: usize) -> impl Iterator<Item = &'a Finding> {
        let own = self.findings.iter().copied();
        own.filter(move |f| f.sites.contains(&site))
    }

    /// Compares the scores of pairs at a site that a runtime computes.
    ///
    /// # Errors
    /// Why they cannot be compared.
    pub(super) fn check(&self, index: usize, backend: &dyn Backend) -> Result<SiteCheck, String> {
        let site = self.context.site(index);
        self.is_usual(site)?;
        let all = self.context.found.findings.iter();
        let scored = all.filter(|f| f.sites.contains(&index) && !f.encoding.is_absolute());
        let rows: Vec<PairRow<'_>> = scored.map(PairRow::of).collect::<Result<_, _>>()?;
        let (scores, epsilon) = match site.scores {
            Some(scores) => self.in_operators(site, scores, backend)?,
            None => self.in_one_operator(site, backend)?,
        };
        let worst = against(&scores, &rows, epsilon);
        if worst.count == 0 {
            return Err("no two pairs of tokens read one row".to_owned());
        }
        Ok(worst.check(&site.name, format!("scores ({})", self.words(index))))
    }

    /// Whether the distance of each pair is known, and nothing else makes scores differ.
    fn is_usual(&self, site: &Site) -> Result<(), String> {
        let found = self.context.found;
        let index = &site.index;
        if site.cross {
            return Err("its keys are of another sequence".to_owned());
        }
        if site.buffer.is_some() || found.partial.contains(index) || found.latent.contains(index) {
            return Err("the places of its queries among the keys are not known".to_owned());
        }
        let graph = self.context.graph();
        let gated = |term| is_gated(graph, &found.classes, &found.trace, site, term);
        if terms(graph, &found.classes, site).into_iter().any(gated) {
            return Err("content is multiplied with it".to_owned());
        }
        Ok(())
    }

    /// That run, of a part of a site.
    fn trial<'b>(&'b self, site: &'b Site) -> TrialRun<'b> {
        let (trace, seeds) = self.run();
        TrialRun {
            site: &site.name,
            model: self.context.model,
            trace,
            seeds,
        }
    }

    fn run(&self) -> &(Trace, FxHashMap<ValueId, Value>) {
        let (model, found) = (self.context.model, self.context.found);
        self.run.get_or_init(|| {
            let ends = found.limits.iter().map(|limit| limit.length);
            let ends = ends.chain(self.findings.iter().filter_map(|f| f.max_length));
            let heads = found.attention.iter().filter_map(|site| site.heads).max();
            let all = (BUDGET.elements / heads.unwrap_or(1).max(1))
                .isqrt()
                .min(LONG);
            let wanted = Lengths {
                batch: 1,
                sequence: ends
                    .min()
                    .unwrap_or(all)
                    .min(all)
                    .saturating_sub(found.lengths.past),
                ..found.lengths
            };
            let is_long = found.ports.fit(wanted) == wanted
                && wanted.sequence > found.lengths.sequence
                && !found.ports.has_free_content();
            let at = if is_long {
                wanted
            } else {
                found.ports.alone(found.lengths)
            };
            trial_run(model, found, at, &BUDGET)
        })
    }

    /// The scores of equal queries and equal keys, `[group, head, query, key]`, and the precision that they have as a
    /// share of the largest.
    fn in_operators(
        &self,
        site: &Site,
        scores: ValueId,
        backend: &dyn Backend,
    ) -> Result<(Array4<f64>, f64), String> {
        let run = self.trial(site);
        let (trace, graph) = (run.trace, self.context.graph());
        let mut fed = vec![site.query.value, site.key.value];
        let before = above(graph, vec![scores], |_| true);
        for finding in self.at(site.index).filter(|f| meets_content(f)) {
            let nodes = finding.entries.iter().map(|entry| graph.node(entry.node));
            let inputs = nodes.flat_map(|node| node.inputs().iter().flatten().copied());
            let content = inputs.filter(|v| self.context.is_content(*v) && before.contains(v));
            fed.extend(content.collect::<Vec<_>>());
        }
        fed.sort_unstable();
        fed.dedup();
        let ones = fed.into_iter().map(|value| {
            let known = trace.get(value);
            let known = known.dims.as_deref().zip(known.dtype);
            let tensor = known.and_then(|(dims, dtype)| ones(dtype, dims));
            tensor.map(|tensor| (value, tensor))
        });
        let given: Option<Vec<(ValueId, Tensor)>> = ones.collect();
        let given = given.ok_or("its queries and keys cannot be fed")?;
        let data = Runtime(backend).compute(&run, &given, scores);
        let data = data.map_err(|error| error.to_string())?;
        let last = [data.ndim().saturating_sub(2), data.ndim().saturating_sub(1)];
        let plane = by_head(data, site.plane.unwrap_or(last), site.heads);
        let plane = plane.ok_or("the axes of the scores are not known")?;
        let keys = site.keys(trace).unwrap_or(plane.dim().3);
        let keys = plane.dim().3.min(keys);
        let plane = plane.slice_move(ndarray::s![.., .., .., ..keys]);
        let found = self.context.found;
        let own = found.classes.of_value(scores).has(Class::CONTENT);
        let met = if own { site.head_dim.unwrap_or(1) } else { 1 };
        let computed = [Some(scores), site.product].into_iter().flatten();
        let computed = computed.filter_map(|v| trace.get(v).dtype.and_then(DType::epsilon));
        let stored = self.at(site.index).flat_map(|f| &f.entries);
        let stored = stored.filter_map(|entry| graph.node(entry.node).input(entry.slot()));
        let stored = stored.map(|v| precision(graph, &found.classes, trace, v));
        let epsilon = computed.chain(stored).fold(0.0, f64::max);
        Ok((plane, (met as f64).sqrt() * epsilon))
    }

    /// The bias that an operator is given.
    fn in_one_operator(
        &self,
        site: &Site,
        backend: &dyn Backend,
    ) -> Result<(Array4<f64>, f64), String> {
        let run = self.trial(site);
        let (trace, graph) = (run.trace, self.context.graph());
        let value = given(graph, site).filter(|value| !self.context.is_content(*value));
        let value = value.ok_or("its operator adds it to the scores by itself")?;
        let data = match graph.constant(value) {
            Some(_) => trace
                .get(value)
                .to_f64()
                .ok_or("its numbers are not at hand")?,
            None => {
                let computed = Runtime(backend).compute(&run, &[], value);
                computed.map_err(|error| error.to_string())?
            }
        };
        let causal = site.mask.causal == Some(true);
        let plane =
            fused_plane(data, site.heads, causal).ok_or("the axes of its bias are not known")?;
        let epsilon = precision(graph, &self.context.found.classes, trace, value);
        Ok((plane.bias, epsilon))
    }
}

/// Whether vectors meet queries or keys.
fn meets_content(finding: &Finding) -> bool {
    !matches!(finding.encoding, Encoding::ScoreBias(..))
}

/// A tensor of ones.
fn ones(dtype: DType, dims: &[usize]) -> Option<Tensor> {
    let count = dims.iter().try_fold(1usize, |n, d| n.checked_mul(*d))?;
    let fits = count <= BUDGET.elements && dtype.epsilon().is_some();
    fits.then(|| Tensor::from_f64(dtype, dims, &vec![1.0; count]))
}

/// The rows that a pair reads.
type Rows = Vec<[i64; 3]>;

/// How far visible pairs are apart that read the same rows, beside what formulas add to them.
fn against(scores: &Array4<f64>, rows: &[PairRow<'_>], epsilon: f64) -> Worst {
    let (groups, heads, queries, keys) = scores.dim();
    let past = keys as i64 - queries as i64;
    let hidden = rows.iter().map(PairRow::hidden).fold(HIDDEN, f64::min);
    // By head and rows: the first score that reads them, and the size of what it was made of.
    let mut known: FxHashMap<(usize, Rows), (f64, f64)> = FxHashMap::default();
    let mut worst = Worst::default();
    for (group, i) in (0..groups).flat_map(|g| (0..queries).map(move |i| (g, i))) {
        for head in 0..heads {
            let row = scores.slice(ndarray::s![group, head, i, ..]);
            let best = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let seen = row
                .iter()
                .enumerate()
                .filter(|(_, score)| best - **score < hidden || score.is_nan());
            for (j, score) in seen {
                let at = At {
                    query: i as i64 + past,
                    key: j as i64,
                    keys,
                };
                let class = rows.iter().map(|of| of.row(head, at, queries)).collect();
                let added = rows.iter().filter_map(|of| of.added(head, at));
                let (value, rounded) = added.fold((0.0, 0.0), |(value, rounded), sample| {
                    (value + sample.value, rounded + sample.rounded.abs())
                });
                let rest = score - value;
                let size = rounded + value.abs() + best.abs().max(score.abs());
                match known.entry((head, class)) {
                    Entry::Vacant(first) => {
                        first.insert((rest, size));
                    }
                    Entry::Occupied(first) => {
                        let (first, other) = *first.get();
                        worst.add(rest, first, ROUNDINGS * epsilon * size.max(other));
                    }
                }
            }
        }
    }
    worst
}
