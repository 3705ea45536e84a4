//! Rescaling the rotations of every branch.

use posenc_ir::{Model, Use};
use rustc_hash::FxHashSet;

use super::rewritten::{Rewritten, with_rotations};
use super::summary::{Changed, cache_of_rescaled, edits, kept_at_cross, kept_beside, warnings};
use crate::detect::branches::{Branch, other_branches};
use crate::detect::{Found, detect, later, masks, rescaled};
use crate::edit::rescale::left::left;
use crate::edit::rescale::reached::{Elsewhere, elsewhere};
use crate::edit::rescale::sequences::{REPEATED, repeated};
use crate::edit::rescale::{Group, Rescaled, rescale};
use crate::error::{Refusal, RewriteError};
use crate::inspect::inspect_encodings;
use crate::plan::rescale::Plan;
use crate::prove::rescaled::has_planned_frequencies;
use crate::record;
use crate::report::{Guarantee, Rewrite};
use crate::request::Request;

/// Gives rotations the planned frequencies.
pub(super) fn apply(
    model: &Model,
    branches: Vec<Branch>,
    plans: &[Option<Plan>],
    request: &Request,
    mut report: Rewrite,
) -> Result<Rewritten, RewriteError> {
    let plan = plans[0].as_ref().expect("the first branch has a plan");
    report.inferred.clone_from(&plan.inferred);
    let meant = meant(&branches);
    for branch in &branches {
        all_are_read(model, &branch.found, &meant)?;
    }
    let done = rescale_branches(model, &branches, plans, request)?;
    let mut branches = branches.into_iter();
    let first = branches.next().expect("there is a first branch");
    let Branch {
        options,
        found: before,
    } = first;
    let is_rescaled = done.is_some();
    let (mut next, mut groups) = done.unwrap_or_else(|| (model.clone(), vec![]));
    let mut after = match is_rescaled {
        true => rescaled(&next, &options, &before),
        false => before.clone(),
    };
    let is_repeated = repeat(&mut next, &mut groups, &after)?;
    if is_repeated {
        after = rescaled(&next, &options, &before);
    }
    if groups.is_empty() {
        let cache = cache_of_rescaled(&before, plan);
        report.warnings = warnings(&before, cache, plan.max_length);
        return Ok(Rewritten {
            other_branches: with_rotations(branches),
            ..Rewritten::new(model.clone(), before, report)
        });
    }
    acts_elsewhere(&next, &after, &groups, &meant)?;
    let fingerprint = &report.input.fingerprint;
    record::write(
        &mut next,
        fingerprint,
        plan.max_length,
        plan.records(&before),
    );
    has_planned_frequencies(&next, &before, &after, plan)?;
    let (from, to) = (
        inspect_encodings(model, &before),
        inspect_encodings(&next, &after),
    );
    let changed = |group: &Group| Changed {
        sites: group
            .sites
            .iter()
            .map(|i| (before.rotary[*i].site, plan.target(*i)))
            .collect(),
        nodes_added: group.nodes_added,
        nodes_removed: group.nodes_removed,
        constants: group.constants_changed,
    };
    let changed: Vec<Changed<'_>> = groups.iter().map(changed).collect();
    report.edits = edits(&before, &changed, &from, &to, &|_| None);
    report.guarantee = match is_rescaled {
        true => Guarantee::NewFunction,
        false => Guarantee::Bits,
    };
    report.limits.after.clone_from(&after.limits);
    report.warnings = warnings(&after, cache_of_rescaled(&after, plan), plan.max_length);
    report.warnings.extend(kept_at_cross(&after, &to));
    report.warnings.extend(kept_beside(&after));
    report.warnings.extend(later::warning(&next, &after));
    report.warnings.extend(masks::warning(&after));
    if is_repeated {
        report.warnings.push(REPEATED.to_owned());
    }
    Ok(Rewritten {
        other_branches: with_rotations(other_branches(&next, &options, &after)),
        bare: without_encodings(&after),
        ..Rewritten::new(next, after, report)
    })
}

/// Repeats cosines and sines of one sequence for all of the batch where operators need these; whether some do.
fn repeat(model: &mut Model, groups: &mut Vec<Group>, found: &Found) -> Result<bool, RewriteError> {
    let Some((next, applied)) = repeated(model, found)? else {
        return Ok(false);
    };
    *model = next;
    if groups.is_empty() {
        groups.push(Group {
            sites: (0..found.rotary.len()).collect(),
            ..Group::default()
        });
    }
    groups[0].nodes_added += applied.added.len();
    groups[0].constants_changed += applied.constants.len();
    Ok(true)
}

/// The sites at which no encoding is found: a rotation that was not read would keep its frequencies.
fn without_encodings(found: &Found) -> Vec<usize> {
    let is_known = |site: &usize| {
        let rotary = found.rotary.iter().any(|rotary| rotary.site == *site);
        rotary || found.findings.iter().any(|f| f.sites.contains(site))
    };
    (0..found.attention.len())
        .filter(|site| !is_known(site))
        .collect()
}

/// Where rotations meet content. That sites share frequencies with others that keep theirs is refused
/// before.
fn meant(branches: &[Branch]) -> FxHashSet<Use> {
    let sites = branches.iter().flat_map(|branch| &branch.found.rotary);
    let regions = sites.flat_map(|site| [&site.query.region, &site.key.region]);
    regions
        .flat_map(|region| region.entries.iter().copied())
        .collect()
}

/// Refuses rotations of an output that attention does not read, as those of keys that are rotated again
/// for a cache: they would keep their frequencies.
fn all_are_read(model: &Model, found: &Found, meant: &FxHashSet<Use>) -> Result<(), RewriteError> {
    let graph = model.graph();
    let Some(id) = left(graph, &found.classes, &found.trace, meant) else {
        return Ok(());
    };
    let why = "an output is rotated here by a part of the graph that was not recognized; it would keep the old \
               frequencies";
    Err(Refusal::unsupported(why).at(graph.place(id)).into())
}

/// Refuses frequencies that act on more than rotations, since that would change too.
fn acts_elsewhere(
    model: &Model,
    after: &Found,
    groups: &[Group],
    meant: &FxHashSet<Use>,
) -> Result<(), RewriteError> {
    let graph = model.graph();
    for group in groups {
        let (place, what) = match elsewhere(graph, &after.classes, &group.touched, meant) {
            None => continue,
            Some(Elsewhere::Node(id)) => (graph.place(id), "node"),
            Some(Elsewhere::Output(value)) => {
                (format!("the output {}", graph.name(value)), "output")
            }
        };
        let why = format!("this {what} also reads the frequencies, so rescaling would change it");
        return Err(Refusal::unsupported(why).at(place).into());
    }
    Ok(())
}

/// The model with the plans of all branches applied; `None` where there is nothing to change.
/// Groups are of sites in the first branch; what changed in others is counted with the first
/// group.
pub(super) fn rescale_branches(
    model: &Model,
    branches: &[Branch],
    plans: &[Option<Plan>],
    request: &Request,
) -> Result<Option<Rescaled>, RewriteError> {
    let mut done: Option<Rescaled> = None;
    for (i, (branch, plan)) in branches.iter().zip(plans).enumerate() {
        let Some(plan) = plan else { continue };
        let at = done.as_ref().map_or(model, |done| &done.0);
        // The branches before this one may have changed what it reads.
        let again = done.is_some().then(|| detect(at, &branch.options));
        let found = again.as_ref().unwrap_or(&branch.found);
        let Some((next, groups)) = rescale(at, found, plan, request)? else {
            continue;
        };
        if i == 0 {
            done = Some((next, groups));
            continue;
        }
        let after = rescaled(&next, &branch.options, found);
        has_planned_frequencies(&next, found, &after, plan)?;
        let place = found.rotary.first().map(|site| at.graph().place(site.node));
        let Some((model, first)) = &mut done else {
            let why = "its rotation differs from that of the branch before it, which already matches the request";
            return Err(Refusal::unsupported(why)
                .at(place.unwrap_or_default())
                .into());
        };
        *model = next;
        if let Some(all) = first.first_mut() {
            for group in groups {
                all.touched.values.extend(group.touched.values);
                all.touched.nodes.extend(group.touched.nodes);
                all.nodes_added += group.nodes_added;
                all.nodes_removed += group.nodes_removed;
                all.constants_changed += group.constants_changed;
            }
        }
    }
    Ok(done)
}
