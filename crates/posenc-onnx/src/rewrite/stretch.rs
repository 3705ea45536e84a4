//! Stretching what is no rotation: tables and biases.

use posenc_ir::Model;

use super::revealed::with_revealed;
use super::rewritten::Rewritten;
use super::summary::{Changed, edits, sites_of, warnings};
use crate::detect::branches::Branch;
use crate::detect::context::Context;
use crate::detect::finding::Finding;
use crate::detect::{Found, detect, limits};
use crate::edit;
use crate::error::RewriteError;
use crate::inspect::entries;
use crate::plan::stretch::{Plan, distances};
use crate::prove::stretched;
use crate::record::stretch::{self, Stretched};
use crate::report::{Guarantee, Limit, Rewrite};
use crate::request::Request;

/// Carries out a plan.
pub(super) fn apply(
    model: &Model,
    branch: Branch,
    plan: &Plan,
    request: &Request,
    mut report: Rewrite,
) -> Result<Rewritten, RewriteError> {
    let Branch {
        options,
        found: before,
    } = branch;
    report.inferred.clone_from(&plan.inferred);
    report.limits.before = limits::all(model.graph(), &before);
    report.limits.after.clone_from(&report.limits.before);
    let context = Context {
        model,
        found: &before,
    };
    let is_whole = request.stack.is_none();
    let shortest = report.limits.before.first().map(|limit| limit.length);
    let ended = shortest.filter(|old| plan.max_length.is_some_and(|new| *old < new));
    if plan.is_empty() && ended.is_none() {
        report.warnings = warnings(&before, None, plan.max_length);
        report.warnings.extend(endless(&before, request));
        return Ok(Rewritten::new(model.clone(), before, report));
    }
    let (mut next, mut applied) = edit::stretch::stretch(&context, plan)?;
    let mut after = detect(&next, &options);
    if let Some(wanted) = plan.max_length {
        let revealed = with_revealed(next, after, &options, wanted, &mut applied)?;
        (next, after) = (revealed.model, revealed.found);
    }
    let result = Context {
        model: &next,
        found: &after,
    };
    let left_out = stretched::check(&context, &result, plan, is_whole, ended)?;
    let (from, to) = (entries(model, &before), entries(&next, &after));
    let sites = sites_of(&before, plan.findings());
    let changed = Changed::of(sites, &applied);
    report.edits = edits(&before, &[changed], &from, &to, &|_| None);
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
    report.warnings = warnings(&after, None, plan.max_length);
    report.warnings.extend(left_out);
    Ok(Rewritten::new(next, after, report))
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
