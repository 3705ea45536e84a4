//! Giving a model another image size.

use posenc_ir::Model;

use super::rewritten::Rewritten;
use super::summary::{Changed, edits, warnings};
use crate::detect::branches::Branch;
use crate::detect::context::Context;
use crate::detect::{detect, limits};
use crate::edit::resize::resize;
use crate::error::RewriteError;
use crate::inspect::entries;
use crate::plan::resize::Plan;
use crate::prove::resized;
use crate::report::{Guarantee, Rewrite};

/// Carries out a plan.
pub(super) fn apply(
    model: &Model,
    branch: Branch,
    plan: &Plan,
    mut report: Rewrite,
) -> Result<Rewritten, RewriteError> {
    let Branch {
        options,
        found: before,
    } = branch;
    let context = Context {
        model,
        found: &before,
    };
    if plan.is_empty() {
        report.warnings = warnings(&before, None, None);
        return Ok(Rewritten::new(model.clone(), before, report));
    }
    let (next, applied) = resize(&context, plan)?;
    let after = detect(&next, &options);
    let result = Context {
        model: &next,
        found: &after,
    };
    resized::check(&context, &result, plan)?;
    let (from, to) = (entries(model, &before), entries(&next, &after));
    let changed = Changed::of(0..before.attention.len(), &applied);
    report.edits = edits(&before, &[changed], &from, &to, &|_| None);
    report.guarantee = Guarantee::NewFunction;
    report.limits.after = limits::all(next.graph(), &after);
    report.warnings = warnings(&after, None, None);
    Ok(Rewritten::new(next, after, report))
}
