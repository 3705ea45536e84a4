//! Groups sites by the constants that they read.

use std::collections::{BTreeMap, BTreeSet};

use posenc_ir::{Model, NodeId, Use, ValueId};
use rustc_hash::FxHashSet;

use super::rounded::{self, Scale};
use crate::detect::rotary::TOLERANCE;
use crate::detect::rotary::rows::stray;
use crate::detect::rotary::source::{RotarySource, Sources, Table};
use crate::detect::{Found, RotaryOperand, RotarySite};
use crate::error::{Refusal, RewriteError};
use crate::plan::rescale::{Plan, Target, is_already, softmax_factor};
use crate::record::{Record, record};

/// Sites that read the same constants, and how to change these.
pub(crate) struct Job {
    pub(crate) target: Target,
    /// Whether its tables have the right rows and only need more of them.
    pub(crate) keeps_rows: bool,
    pub(crate) sites: Vec<usize>,
    pub(crate) source: RotarySource,
    /// The present factor on cos and sin.
    pub(crate) factor: f64,
    /// Products of queries and keys, for the correction of the softmax scale.
    pub(crate) products: Vec<ValueId>,
    /// The correction, relative to the present one.
    pub(crate) softmax_factor: f64,
}

/// What changes in a model.
#[derive(Default)]
pub(crate) struct Jobs {
    pub(crate) all: Vec<Job>,
    /// Scales of rounding to integers, by how much they grow, and where.
    pub(crate) ranges: BTreeMap<ValueId, (f64, BTreeSet<Use>)>,
}

/// One job for each set of constants.
///
/// # Errors
/// If the source of a rotation is not found, a row of a table departs from the law of the first rows,
/// or sites that share constants have different targets or are not all in the plan.
pub(crate) fn jobs(model: &Model, found: &Found, plan: &Plan) -> Result<Jobs, RewriteError> {
    let record = record(model);
    let sources = Sources::of(model, found);
    let mut collector = Collector {
        model,
        found,
        sources: &sources,
        record: record.as_ref(),
        jobs: vec![],
        ranges: BTreeMap::new(),
        by_inputs: BTreeMap::new(),
    };
    let mut short: BTreeMap<Vec<ValueId>, bool> = BTreeMap::new();
    for (i, target) in &plan.targets {
        let site = &found.rotary[*i];
        let keeps_rows = is_already(record.as_ref(), site, target);
        let mut is_short = |half: &RotaryOperand| {
            let known = short.entry(inputs(model, half));
            *known.or_insert_with(|| is_short(&sources, found, half, plan))
        };
        if keeps_rows && ![&site.query, &site.key].into_iter().any(&mut is_short) {
            continue;
        }
        for half in [&site.query, &site.key] {
            collector.add(*i, half, target, keeps_rows)?;
        }
        collector.widen(site, target)?;
    }
    refuse_bystanders((model, found), &sources, plan, &collector.jobs)?;
    Ok(Jobs {
        all: collector.jobs,
        ranges: collector.ranges,
    })
}

/// Collects jobs, rotation by rotation.
struct Collector<'a> {
    model: &'a Model,
    found: &'a Found,
    sources: &'a Sources<'a>,
    /// What an earlier rewrite wrote.
    record: Option<&'a Record>,
    jobs: Vec<Job>,
    ranges: BTreeMap<ValueId, (f64, BTreeSet<Use>)>,
    /// The job of a rotation, by its inputs: these determine the constants that it reads.
    by_inputs: BTreeMap<Vec<ValueId>, usize>,
}

impl Collector<'_> {
    /// Adds the rotation of queries or keys at a site.
    fn add(
        &mut self,
        index: usize,
        half: &RotaryOperand,
        target: &Target,
        keeps_rows: bool,
    ) -> Result<(), RewriteError> {
        let site = &self.found.rotary[index];
        let inputs = inputs(self.model, half);
        let at = match self.by_inputs.get(&inputs) {
            Some(at) => *at,
            None => {
                let source = self.sources.find(half);
                let source = source.map_err(|why| self.without_source(site, half, &why))?;
                if !keeps_rows && let RotarySource::Tables(tables) = &source {
                    self.check_rows(site, half, tables)?;
                }
                let at = self.job_of(source, site, half, target, keeps_rows);
                self.by_inputs.insert(inputs, at);
                at
            }
        };
        let job = &mut self.jobs[at];
        // Queries and keys with the same constants still read them by different nodes.
        job.source.enter(half.region.entries.iter().map(|u| u.node));
        job.keeps_rows &= keeps_rows;
        if job.target != *target {
            let why = "it shares its frequencies with a site that has a different target";
            return Err(refused(self.model, site, why));
        }
        if job.sites.last() != Some(&index) {
            job.sites.push(index);
            // Several sites share the product in the body of a loop.
            let product = self.found.attention[site.site].product;
            job.products.extend(product);
        }
        Ok(())
    }

    /// Refuses a rotation of which no constant is known that contains its frequencies.
    fn without_source(&self, site: &RotarySite, half: &RotaryOperand, why: &str) -> RewriteError {
        match rounded::within(self.model.graph(), &half.region) {
            None => refused(self.model, site, why),
            Some(id) => {
                let why = "numbers of a rotation are rounded to integers here; rescale the model before it \
                           is quantized";
                Refusal::unsupported(why)
                    .at(self.model.graph().place(id))
                    .into()
            }
        }
    }

    /// Lets the ranges of integers grow as rotated numbers and their products do.
    fn widen(&mut self, site: &RotarySite, target: &Target) -> Result<(), RewriteError> {
        // A factor that depends on the length is largest at one of the ends.
        let factors = [1, 1 << 20].map(|length| {
            let scaled = target.scaling.frequencies(&target.rope, length);
            scaled.attention_factor
        });
        let largest = factors[0].max(factors[1]);
        let graph = self.model.graph();
        let attention = &self.found.attention[site.site];
        let refuse = |node: NodeId| {
            let why = "the factor on rotated numbers grows, and they are rounded here to integers of a range \
                       that cannot; give `attention-factor` 1, or rescale the model before it is quantized";
            let refusal = Refusal::unsupported(why).at(graph.place(node));
            Err(refusal.in_site(&attention.name).into())
        };
        let mut both = 1.0;
        let mut wide: Vec<(ValueId, f64)> = vec![];
        for half in [&site.query, &site.key] {
            let growth = largest / half.rotation.rope.attention_factor;
            if growth <= 1.0 + TOLERANCE {
                continue;
            }
            // Within an operator of attention, nothing is rounded.
            if half.region.inside.is_some() {
                continue;
            }
            let entries = half.region.entries.iter();
            let outputs = entries.flat_map(|at| graph.node(at.node).outputs());
            wide.extend(outputs.flatten().map(|value| (*value, growth)));
            both *= growth;
        }
        wide.extend(attention.product.map(|product| (product, both)));
        for (value, growth) in wide.into_iter().filter(|(_, growth)| *growth > 1.0) {
            let scales = match rounded::behind(graph, value) {
                Ok(scales) => scales,
                Err(node) => return refuse(node),
            };
            for Scale { value, at } in scales {
                let own = self.ranges.entry(value).or_default();
                own.0 = own.0.max(growth);
                own.1.insert(at);
            }
        }
        Ok(())
    }

    /// Refuses tables of which some row is of another law than the first rows.
    fn check_rows(
        &self,
        site: &RotarySite,
        half: &RotaryOperand,
        tables: &[Table],
    ) -> Result<(), RewriteError> {
        let graph = self.model.graph();
        for table in tables {
            let rope = &half.rotation.rope;
            if let Some(row) = stray(graph, &self.found.trace, table, rope) {
                let why = format!(
                    "row {row} of its table {} is not what the frequencies of the first rows give",
                    graph.name(table.root)
                );
                return Err(refused(self.model, site, &why));
            }
        }
        Ok(())
    }

    /// The index of the job that changes the constants of a source.
    fn job_of(
        &mut self,
        source: RotarySource,
        site: &RotarySite,
        half: &RotaryOperand,
        target: &Target,
        keeps_rows: bool,
    ) -> usize {
        if let Some(at) = self.jobs.iter().position(|j| shares(&j.source, &source)) {
            merge(&mut self.jobs[at].source, source);
            return at;
        }
        self.jobs.push(Job {
            target: target.clone(),
            keeps_rows,
            sites: vec![],
            source,
            factor: half.rotation.rope.attention_factor,
            products: vec![],
            softmax_factor: target.softmax_factor / softmax_factor(self.record, site.site),
        });
        self.jobs.len() - 1
    }
}

fn refused(model: &Model, site: &RotarySite, why: &str) -> RewriteError {
    let place = model.graph().place(site.node);
    Refusal::unsupported(why).at(place).into()
}

/// The inputs of a rotation, apart from content.
fn inputs(model: &Model, half: &RotaryOperand) -> Vec<ValueId> {
    let entries = half.region.entries.iter();
    let values = entries.filter_map(|u| model.graph().node(u.node).input(u.slot()));
    let mut values: Vec<ValueId> = values.collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// Whether a rotation reads a table that is shorter than the planned length and can be extended.
fn is_short(sources: &Sources<'_>, found: &Found, half: &RotaryOperand, plan: &Plan) -> bool {
    let Some(wanted) = plan.max_length.and_then(|n| i64::try_from(n).ok()) else {
        return false;
    };
    if found.ports.fixed_sequence().is_some() {
        return false;
    }
    match sources.find(half) {
        Ok(RotarySource::Tables(tables)) => tables.iter().any(|t| t.end() < wanted),
        Ok(RotarySource::Computed(_)) | Err(_) => false,
    }
}

fn shares(a: &RotarySource, b: &RotarySource) -> bool {
    let b = b.roots();
    a.roots().iter().any(|v| b.contains(v))
}

/// Merges another source with the same constants.
fn merge(into: &mut RotarySource, other: RotarySource) {
    match (into, other) {
        (RotarySource::Computed(a), RotarySource::Computed(b)) => {
            a.cone.extend(b.cone);
            a.waves.extend(b.waves);
            a.waves.sort_unstable();
            a.waves.dedup();
        }
        (RotarySource::Tables(a), RotarySource::Tables(b)) => {
            for table in b {
                match a.iter_mut().find(|t| t.root == table.root) {
                    Some(same) => same.cone.extend(table.cone),
                    None => a.push(table),
                }
            }
        }
        _ => {}
    }
}

/// A site that is not part of the plan must not change.
fn refuse_bystanders(
    (model, found): (&Model, &Found),
    sources: &Sources<'_>,
    plan: &Plan,
    jobs: &[Job],
) -> Result<(), RewriteError> {
    let planned: FxHashSet<usize> = plan.targets.iter().map(|(i, _)| *i).collect();
    for (i, site) in found.rotary.iter().enumerate() {
        if planned.contains(&i) {
            continue;
        }
        for half in [&site.query, &site.key] {
            let Ok(source) = sources.find(half) else {
                continue;
            };
            let mut changed = jobs.iter().filter(|j| !j.keeps_rows);
            if changed.any(|j| shares(&j.source, &source)) {
                let why = "it shares its frequencies with a selected site; select both or none";
                return Err(refused(model, site, why));
            }
        }
    }
    Ok(())
}
