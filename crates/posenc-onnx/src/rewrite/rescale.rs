//! Stretching what turns in every branch: a decoder that was merged from one with and one without
//! a cache turns in both.

use posenc_ir::Model;

use super::agrees;
use crate::detect::{Found, Options, detect};
use crate::edit::rescale::{Rescaled, rescale};
use crate::error::{Refusal, RewriteError};
use crate::plan::rescale::Plan;
use crate::report::Limit;
use crate::request::Request;
use crate::rewrite::branches::others as other_branches;

/// What is planned for the rotations that were found, and the model with that done in every branch;
/// none where there is nothing to change. Groups are of sites that were found; what changed in
/// other branches is counted with the first.
pub(crate) fn stretch(
    model: &Model,
    found: &Found,
    limits: &[Limit],
    request: &Request,
    options: &Options,
) -> Result<(Plan, Option<Rescaled>), RewriteError> {
    let plan = crate::plan::rescale::plan(model, found, limits, request)?;
    let mut done = rescale(model, found, &plan, request)?;
    for (options, _) in other_branches(model, found, options) {
        let at = done.as_ref().map_or(model, |done| &done.0);
        let found = detect(at, &options);
        let Some(first) = found.rotary.first() else {
            continue;
        };
        let plan = crate::plan::rescale::plan(at, &found, limits, request)?;
        let Some((next, more)) = rescale(at, &found, &plan, request)? else {
            continue;
        };
        agrees(&next, &found, &detect(&next, &options), &plan)?;
        let place = at.graph().place(first.node);
        let Some((model, groups)) = &mut done else {
            let why = format!(
                "{place}: it turns otherwise than the branch before it, which is as asked for"
            );
            return Err(Refusal::Unsupported(why).into());
        };
        *model = next;
        if let Some(all) = groups.first_mut() {
            for group in more {
                all.nodes_added += group.nodes_added;
                all.nodes_removed += group.nodes_removed;
                all.constants_changed += group.constants_changed;
            }
        }
    }
    Ok((plan, done))
}
