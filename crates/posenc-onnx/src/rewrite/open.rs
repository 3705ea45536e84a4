//! Opening a model for images of any size.

use posenc_ir::Model;

use super::rewritten::Rewritten;
use super::summary::{Changed, edits, sites_of, warnings};
use crate::detect::branches::Branch;
use crate::detect::context::Context;
use crate::detect::{detect, limits};
use crate::edit;
use crate::error::RewriteError;
use crate::inspect::entries;
use crate::plan::resize::Open;
use crate::prove::resized;
use crate::report::{Guarantee, Rewrite};

/// Carries out a plan.
pub(super) fn apply(
    model: &Model,
    branch: Branch,
    plan: &Open,
    mut report: Rewrite,
) -> Result<Rewritten, RewriteError> {
    let Branch {
        options,
        found: before,
    } = branch;
    report.inferred.clone_from(&plan.inferred);
    report.limits.before = limits::all(model.graph(), &before);
    let context = Context {
        model,
        found: &before,
    };
    let (next, applied) = edit::resize::open(&context, plan)?;
    resized::open::check(&context, &next, plan, &options)?;
    let after = detect(&next, &options);
    let result = Context {
        model: &next,
        found: &after,
    };
    resized::open::check_open(&context, &result)?;
    let (from, to) = (entries(model, &before), entries(&next, &after));
    let sites = sites_of(&before, 0..before.findings.len());
    let changed = Changed::of(sites, &applied);
    report.edits = edits(&before, &[changed], &from, &to, &|_| None);
    report.guarantee = Guarantee::NewFunction;
    report.limits.after = limits::all(next.graph(), &after);
    report.warnings = warnings(&after, None, None);
    Ok(Rewritten::new(next, after, report))
}
