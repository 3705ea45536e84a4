//! Stretching what is no rotation: tables and biases.

use posenc_encodings::kind::Kind;
use posenc_encodings::params::Params;
use posenc_ir::{Applied, Model};

use super::revealed::{Revealed, with_revealed};
use super::rewritten::Rewritten;
use super::summary::{Changed, edits, kept_by_stretch, sites_of, warnings};
use super::swap;
use crate::detect::branches::Branch;
use crate::detect::context::Context;
use crate::detect::finding::{Encoding, Finding};
use crate::detect::{Found, detect, limits};
use crate::edit;
use crate::edit::stretch::part::Part;
use crate::error::RewriteError;
use crate::inspect::entries;
use crate::plan::stretch::{Plan, distances};
use crate::prove::stretched;
use crate::record::stretch::{self, Stretched};
use crate::report::{Guarantee, Limit, Rewrite};
use crate::request::Request;

/// Carries out the plans of all branches.
pub(super) fn apply(
    model: &Model,
    mut branches: Vec<Branch>,
    plans: &[Plan],
    request: &Request,
    mut report: Rewrite,
) -> Result<Rewritten, RewriteError> {
    let parts = branches
        .iter()
        .zip(plans)
        .map(|(Branch { found, .. }, plan)| {
            let context = Context { model, found };
            Part { context, plan }
        });
    let parts: Vec<Part<'_>> = parts.collect();
    let Part {
        context: Context { found: before, .. },
        plan,
    } = parts[0];
    report.inferred.clone_from(&plan.inferred);
    report.limits.before = limits::all(model.graph(), before);
    report.limits.after.clone_from(&report.limits.before);
    let ends = parts.iter().map(ended);
    let ends: Vec<Option<usize>> = ends.collect();
    if plans.iter().all(Plan::is_empty) && ends.iter().all(Option::is_none) {
        report.warnings = warnings(before, None, plan.max_length);
        report.warnings.extend(endless(before, request));
        let first = branches.swap_remove(0).found;
        return Ok(Rewritten::new(model.clone(), first, report));
    }
    let (next, mut applied) = edit::stretch::stretch(model, &parts)?;
    let (mut next, all) = with_all_revealed(next, &branches, plan.max_length, &mut applied)?;
    let is_whole = request.stack.is_none();
    let mut left_out: Vec<String> = vec![];
    for ((part, found), ended) in parts.iter().zip(&all).zip(ends) {
        let result = Context {
            model: &next,
            found,
        };
        let more = stretched::check(&part.context, &result, part.plan, is_whole, ended)?;
        for why in more {
            if !left_out.contains(&why) {
                left_out.push(why);
            }
        }
    }
    let mut others = all;
    let after = others.remove(0);
    let (from, to) = (entries(model, before), entries(&next, &after));
    let sites = sites_of(before, plan.findings());
    let changed = Changed::of(sites, &applied);
    report.edits = edits(before, &[changed], &from, &to, &|_| None);
    report.guarantee = Guarantee::NewFunction;
    report.limits.after = limits::all(next.graph(), &after);
    let scaled = Stretched {
        scale: request.scale,
        corners: request.parameters.corners,
        continued: request.scale.is_none()
            && !(plan.tables.is_empty() && plan.distances.is_empty()),
        factor: plan.biases.first().map(|bias| bias.of_original),
        ..Stretched::default()
    };
    record(&mut next, &report, scaled);
    for ((part, branch), found) in parts
        .iter()
        .zip(&branches)
        .zip(std::iter::once(&after).chain(&others))
    {
        let revised = |kind, site, params: &Params| divided(part, (kind, site), params);
        swap::revise((&mut next, found), branch.options.branch, revised);
    }
    report.warnings = warnings(&after, None, plan.max_length);
    report.warnings.extend(left_out);
    if request.scale.is_some() && is_whole {
        report.warnings.extend(kept_by_stretch(before, plan));
    }
    Ok(Rewritten::new(next, after, report))
}

/// The recorded parameters of a bias of this kind at a site with what changed where it was divided; `None` where it was
/// not.
fn divided(part: &Part<'_>, (kind, site): (Kind, usize), recorded: &Params) -> Option<Params> {
    let findings = &part.context.found.findings;
    let mut all = part.plan.biases.iter();
    let (before, after) = all.find_map(|own| match &findings[own.finding] {
        Finding {
            encoding: Encoding::ScoreBias(of, before),
            sites,
            ..
        } if *of == kind && sites.contains(&site) => Some((before.params(), own.bias.params())),
        _ => None,
    })?;
    // What a few tokens do not show is known by the record alone.
    let changed = after
        .into_iter()
        .filter(|(name, value)| before.get(name) != Some(value));
    Some(recorded.clone().into_iter().chain(changed).collect())
}

/// The length at which a branch ends now, where it is to go on.
fn ended(part: &Part<'_>) -> Option<usize> {
    let Part { context, plan } = part;
    let limits = limits::all(context.graph(), context.found);
    let shortest = limits.first().map(|limit| limit.length);
    shortest.filter(|old| plan.max_length.is_some_and(|new| *old < new))
}

/// A model whose buffers reach as far as they can in every branch, with what is found in each.
fn with_all_revealed(
    mut model: Model,
    branches: &[Branch],
    wanted: Option<usize>,
    applied: &mut Applied,
) -> Result<(Model, Vec<Found>), RewriteError> {
    let mut all: Vec<Found> = vec![];
    for Branch { options, .. } in branches {
        let found = detect(&model, options);
        let done = match wanted {
            Some(wanted) => with_revealed(model, found, options, wanted, applied)?,
            None => Revealed::of(model, found),
        };
        model = done.model;
        // The branches before it may read what was extended.
        for (found, branch) in all.iter_mut().zip(branches) {
            if done.extended > 0 {
                *found = detect(&model, &branch.options);
            }
        }
        all.push(done.found);
    }
    Ok((model, all))
}

/// That distances need no more rows, where a longer sequence was asked for.
fn endless(found: &Found, request: &Request) -> Option<String> {
    request.parameters.max_length?;
    let is_clamped =
        |finding: &&Finding| finding.max_length.is_none() && distances::is_by_distance(finding);
    let clamped = found.findings.iter().find(is_clamped)?;
    Some(format!(
        "nothing changes: the graph clamps the distances of {}, so that its tables end nowhere",
        clamped.encoding.kind()
    ))
}

/// Records the limits of a report and what was `scaled`, next to what earlier rewrites did.
pub(super) fn record(model: &mut Model, report: &Rewrite, scaled: Stretched) {
    let shortest = |limits: &[Limit]| limits.first().map(|limit| limit.length);
    let stretched = Stretched {
        before: shortest(&report.limits.before),
        after: shortest(&report.limits.after),
        ..scaled
    };
    stretch::write(model, &report.input.fingerprint, stretched);
}
