//! Rotations of other pairs of features, which compute the same.

use std::collections::BTreeSet;

use posenc_encodings::kind::{Kind, Layout};
use posenc_encodings::params::Params;
use serde_json::json;

use super::form::{read_back, tell};
use super::rewritten::{Respelled, Rewritten};
use super::swap;
use crate::detect::context::Context;
use crate::detect::finding::Finding;
use crate::detect::{Options, RotarySite};
use crate::edit::layout::{Relaid, relay};
use crate::error::{Refusal, RefusalKind, RewriteError};
use crate::plan::selection::chosen;
use crate::request::Request;

/// Gives the rotations of a result a layout. `options` are those of the only branch. Also returns the models before
/// and after, which compute the same, where something changed.
///
/// # Errors
/// Where features cannot be put in another order, and where the result is not read back as before.
pub(super) fn apply(
    mut done: Rewritten,
    options: Option<&Options>,
    request: &Request,
    layout: Layout,
) -> Result<(Rewritten, Option<Respelled>), RewriteError> {
    let before = &done.found;
    let context = Context {
        model: &done.model,
        found: before,
    };
    if request.layers.is_some() || request.stack.is_some() {
        // Layers and stacks that the model lacks are refused.
        chosen(before, request)?;
    }
    let refusal = |why: &str| Refusal::new(RefusalKind::UnsupportedOption("layout"), why);
    let covers = |site: usize| request.covers(&before.attention[site]);
    let mut unread = before.not_rotary.iter().filter(|own| covers(own.site));
    if let Some(unread) = unread.next() {
        let why = format!(
            "this was not read as a rotation, and would keep its layout: {}",
            unread.why
        );
        return Err(refusal(&why).at(context.graph().place(unread.node)).into());
    }
    let axial = before.axial.iter().map(|axial| &axial.finding);
    let mut axial = axial.filter(|own| own.sites.iter().any(|site| covers(*site)));
    if let Some(node) = axial.next().and_then(Finding::node) {
        let why = "rotations by rows and columns keep their layout";
        return Err(refusal(why).at(context.graph().place(node)).into());
    }
    if before.rotary.is_empty() {
        let why = "only rotations have a layout that weights can follow, and the model has none";
        return Err(refusal(why).into());
    }
    let Some(options) = options else {
        let why = "rotations in the branches of a model keep their layout";
        return Err(refusal(why).into());
    };
    let Some(Relaid {
        made,
        moved,
        defaults,
    }) = relay(&context, layout, covers)?
    else {
        return Ok((done, None));
    };
    let meant = |old: &RotarySite| (old.form, Some(layout));
    let after = read_back(&made, before, (options, "layout"), meant)?;
    if !moved.is_empty() {
        let names: Vec<&str> = moved.iter().map(|(name, _)| &**name).collect();
        done.report.warnings.push(format!(
            "keys in caches have their features in another order than before ({}): caches of the model before \
             do not fit, and models that share caches with it need the same layout",
            names.join(", ")
        ));
    }
    if !defaults.is_empty() {
        done.report.warnings.push(format!(
            "weights that are inputs with a default have another order than before ({}): whoever feeds them has to \
             put them in that order too",
            defaults.join(", ")
        ));
    }
    let pair = Respelled {
        models: [done.model.clone(), made.model.clone()],
        of: done.model.clone(),
        found: before.clone(),
        moved,
    };
    let covered = before.rotary.iter().map(|own| own.site);
    let covered: BTreeSet<usize> = covered.filter(|site| covers(*site)).collect();
    tell(&mut done, made, after, |_, _| {});
    let relaid = |kind: Kind, site: usize, params: &Params| {
        let mut params = params.clone();
        params.insert("layout".to_owned(), json!(layout));
        (kind == Kind::Rope && covered.contains(&site)).then_some(params)
    };
    swap::revise((&mut done.model, &done.found), options.branch, relaid);
    Ok((done, Some(pair)))
}
