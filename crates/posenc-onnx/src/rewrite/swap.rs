//! Replacing encodings, then rescaling rotations that were inserted.

pub(crate) mod branch;
mod caches;
mod learned;
#[cfg(test)]
mod tests;

use posenc_encodings::inferred;
use posenc_encodings::param::Given;
use posenc_encodings::params::Params;
use posenc_ir::{Model, ValueId};
use serde_json::{Value, json};

use super::rescale::rescale_branches;
use super::rewritten::{Rewritten, with_rotations};
use super::summary::{
    Changed, cache_of_swapped, describe, edits, kept_at_cross, kept_at_learned, meaning, warnings,
};
use crate::detect::absolute::input_of_coordinates;
use crate::detect::branches::{Branch, other_branches};
use crate::detect::context::Context;
use crate::detect::finding::Finding;
use crate::detect::{Found, detect, limits};
use crate::error::{Refusal, RewriteError};
use crate::inspect::entries;
use crate::plan::change::rescale_plans;
use crate::plan::swap::SwapPlan;
use crate::prove::rescaled::has_planned_frequencies;
use crate::prove::stretched::ends_from;
use crate::record::swap::BranchRecord;
use crate::record::{self, record as recorded};
use crate::report::{Encoding, Guarantee, Limit, LimitCause, Rewrite};
use crate::request::Request;
use branch::{Swapped, swap_branches};
use posenc_encodings::kind::Kind;

/// Replaces the encodings of every branch, and rescales rotations that were inserted where the
/// request says so.
pub(super) fn apply(
    model: &Model,
    branches: &[Branch],
    plans: Vec<Option<SwapPlan>>,
    request: &Request,
    mut report: Rewrite,
) -> Result<Rewritten, RewriteError> {
    let (lead, swapped) = swap_branches(model, branches, plans, request)?;
    let Branch {
        options,
        found: before,
    } = &branches[lead];
    let Swapped {
        model: mut next,
        found,
        plan,
        nodes,
        extended,
        proof,
        records,
    } = swapped;
    report.inferred.clone_from(&plan.inferred);
    let mut changed = Changed {
        sites: plan.sites.iter().map(|site| (*site, None)).collect(),
        nodes_added: nodes[0],
        nodes_removed: nodes[1],
        constants: extended,
    };
    let rescales =
        plan.kind == Kind::Rope && (request.scale.is_some() || request.hf_config.is_some());
    let mut result = Inserted {
        branch: Branch {
            options: options.clone(),
            found,
        },
        is_plain: true,
    };
    if rescales {
        let limits = &before.limits;
        result.rescale(&mut next, limits, request, &mut report, &mut changed)?;
    }
    let Inserted {
        branch: Branch { found, .. },
        is_plain,
    } = result;
    let (from, to) = (entries(model, before), entries(&next, &found));
    let asked = (plan.kind, &request.parameters.family);
    write(&mut next, &report, asked, (&to, records), is_plain);
    let planned = |site: usize| planned(&plan, site);
    report.edits = edits(before, &[changed], &from, &to, &planned);
    let is_hidden = |site: &usize| describe(before, &to, *site).is_null();
    let mut sites = plan.sites.iter();
    let starts_from_zeros = sites.any(|site| is_hidden(site) && planned(*site).is_some());
    if report.edits.is_empty() {
        let why = "what would be removed is not among the encodings that were found";
        return Err(Refusal::unsupported(why).into());
    }
    report.guarantee = Guarantee::NewFunction;
    report.meaning = Some(meaning(&report.edits, plan.kind));
    report.limits.before = limits::all(model.graph(), before);
    report.limits.after = limits::all(next.graph(), &found);
    let others = other_branches(&next, options, &found);
    for found in std::iter::once(&found).chain(others.iter().map(|branch| &branch.found)) {
        let context = Context {
            model: &next,
            found,
        };
        check_reach(&context, request)?;
    }
    let cache = cache_of_swapped(before, &found, &plan.sites);
    report.warnings = warnings(&found, cache, plan.max_length);
    report.warnings.extend(kept_at_cross(&found, &to));
    report.warnings.extend(kept_at_learned(before));
    // What of the old graph could not be evaluated may still be there.
    report.warnings.extend(before.not_evaluated.iter().cloned());
    report.warnings.extend(reads_ahead(&found, &plan));
    report
        .warnings
        .extend(loses_coordinates(model, before, &plan));
    if starts_from_zeros {
        report.warnings.push(format!(
            "the inserted {} starts from zeros: until it is trained, the model computes what it \
             does without positions",
            plan.kind
        ));
    }
    Ok(Rewritten {
        other_branches: with_rotations(others),
        proof: Some(proof),
        ..Rewritten::new(next, found, report)
    })
}

/// Refuses a result with buffers that end before the length that was asked for. A graph of one length keeps
/// it, and so do tables where only some sites get another encoding: warnings tell these.
fn check_reach(result: &Context<'_>, request: &Request) -> Result<(), RewriteError> {
    let is_static = result.found.ports.fixed_sequence().is_some();
    let Some(wanted) = request.parameters.max_length.filter(|_| !is_static) else {
        return Ok(());
    };
    let is_part = request.layers.is_some() || request.stack.is_some();
    let is_meant = |limit: &Limit| match limit.cause {
        LimitCause::Table | LimitCause::Cache => !is_part,
        LimitCause::StaticShape | LimitCause::Runtime => false,
        _ => true,
    };
    match ends_from(result, wanted, &is_meant) {
        Err(RewriteError::Refused(refusal)) => {
            let advice = "; leave out `max-length`, or give what it ends at";
            Err(refusal.with(advice).into())
        }
        done => done,
    }
}

/// Tables that coordinates of the input pick from, which are removed with those of positions.
fn loses_coordinates(model: &Model, before: &Found, plan: &SwapPlan) -> Vec<String> {
    let graph = model.graph();
    let is_removed = |f: &&Finding| f.sites.iter().any(|site| plan.sites.contains(site));
    let removed = before.findings.iter().filter(is_removed);
    let mut inputs: Vec<ValueId> = removed
        .filter_map(|finding| input_of_coordinates(graph, before, finding))
        .collect();
    inputs.dedup();
    let warning = |input: &ValueId| {
        let name = graph.name(*input);
        format!(
            "the tables that the coordinates of {name} pick from are removed too: the result does \
             not know what these coordinates say"
        )
    };
    inputs.iter().map(warning).collect()
}

/// A convolution under a causal mask.
fn reads_ahead(found: &Found, plan: &SwapPlan) -> Option<String> {
    let is_causal = |site: &usize| found.attention[*site].mask.causal == Some(true);
    let is_ahead = plan.kind == Kind::Conv && plan.sites.iter().any(is_causal);
    is_ahead.then(|| {
        "the convolution reads the tokens after each token too, which the causal mask hides from \
         attention: a model that generates text would see its next token"
            .to_owned()
    })
}

/// What a site is to have, by the plan: tables of zeros have no effect before training, and cannot
/// be read back.
fn planned(plan: &SwapPlan, site: usize) -> Option<Value> {
    let mut groups = plan.groups.iter();
    let group = groups.find(|group| group.sites.binary_search(&site).is_ok())?;
    Some(json!({"kind": plan.kind, "params": group.new.encoding().params()}))
}

/// A model with encodings that were inserted.
struct Inserted {
    branch: Branch,
    /// Whether rotations have plain frequencies.
    is_plain: bool,
}

impl Inserted {
    /// Gives rotations the frequencies that the request describes. `limits` are those of the model
    /// before any change.
    fn rescale(
        &mut self,
        next: &mut Model,
        limits: &[Limit],
        request: &Request,
        report: &mut Rewrite,
        changed: &mut Changed<'_>,
    ) -> Result<(), RewriteError> {
        let Branch { options, found } = &self.branch;
        let mut branches = vec![self.branch.clone()];
        branches.extend(other_branches(next, options, found));
        let plans = rescale_plans(next, &branches, limits, request)?;
        let plan = plans[0].as_ref().expect("the first branch has a plan");
        for value in &plan.inferred {
            inferred::add(&mut report.inferred, value.clone());
        }
        if let Some((scaled, groups)) = rescale_branches(next, &branches, &plans, request)? {
            *next = scaled;
            for group in groups {
                changed.nodes_added += group.nodes_added;
                changed.nodes_removed += group.nodes_removed;
                changed.constants += group.constants_changed;
            }
        }
        let fingerprint = &report.input.fingerprint;
        record::write(next, fingerprint, plan.max_length, plan.records(found));
        let after = detect(next, options);
        has_planned_frequencies(next, found, &after, plan)?;
        self.is_plain = plan.targets.is_empty();
        self.branch.found = after;
        Ok(())
    }
}

/// Writes the record of a swap, and clears that of rotations which are gone.
fn write(
    model: &mut Model,
    report: &Rewrite,
    asked: (Kind, &Given),
    (to, branches): (&[Encoding], Vec<BranchRecord>),
    is_plain: bool,
) {
    let source = &report.input.fingerprint;
    record::swap::write(model, source, asked, recorded_of(to, asked.0), branches);
    if is_plain && recorded(model).is_some() {
        record::clear(model, source);
    }
}

/// The encodings of a kind, as the record of a swap has them.
fn recorded_of(all: &[Encoding], kind: Kind) -> Vec<Value> {
    let own = all.iter().filter(|e| e.kind == kind);
    own.map(|e| json!({"stack": e.stack, "layers": e.layers, "params": e.params}))
        .collect()
}

/// Revises the record of an earlier swap after a rewrite that changed what it inserted in a branch: `revised` makes the
/// parameters of a site of the recorded ones, or none where these hold.
pub(super) fn revise(
    (model, found): (&mut Model, &Found),
    branch: usize,
    revised: impl Fn(Kind, usize, &Params) -> Option<Params>,
) {
    let all = entries(model, found);
    record::swap::revise(model, branch, revised, |kind| recorded_of(&all, kind));
}
