//! Stretching what is no rotation: tables and biases.

use posenc_ir::Model;

use super::rewritten::Rewritten;
use super::summary::{Changed, edits, warnings};
use crate::detect::branches::Branch;
use crate::detect::context::Context;
use crate::detect::{detect, limits};
use crate::edit::stretch::stretch;
use crate::error::RewriteError;
use crate::inspect::entries;
use crate::plan::stretch::Plan;
use crate::prove::stretched;
use crate::record::{self, stretch::Stretched};
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
    if plan.is_empty() {
        stretched::reaches(&context, plan, is_whole)?;
        report.warnings = warnings(&before, None, plan.max_length);
        return Ok(Rewritten::new(model.clone(), before, report));
    }
    let (mut next, applied) = stretch(&context, plan)?;
    let after = detect(&next, &options);
    let result = Context {
        model: &next,
        found: &after,
    };
    stretched::check(&context, &result, plan, is_whole)?;
    let (from, to) = (entries(model, &before), entries(&next, &after));
    let changed = plan.findings();
    let mut sites: Vec<usize> = changed
        .flat_map(|at| before.findings[at].sites.iter().copied())
        .collect();
    sites.sort_unstable();
    sites.dedup();
    let changed = Changed::of(sites, &applied);
    report.edits = edits(&before, &[changed], &from, &to, &|_| None);
    report.guarantee = Guarantee::NewFunction;
    report.limits.after = limits::all(next.graph(), &after);
    let shortest = |limits: &[Limit]| limits.first().map(|limit| limit.length);
    let stretched = Stretched {
        before: shortest(&report.limits.before),
        after: shortest(&report.limits.after),
        scale: request.scale,
        factor: plan.biases.first().map(|bias| bias.of_original),
    };
    record::stretch::write(&mut next, &report.input.fingerprint, &stretched);
    report.warnings = warnings(&after, None, plan.max_length);
    Ok(Rewritten::new(next, after, report))
}
