//! Giving a model other sizes, of images or of sequences.

use posenc_encodings::resize::Resizing;
use posenc_ir::Model;
use serde_json::json;

use super::rewritten::Rewritten;
use super::stretch;
use super::summary::{Changed, edits, or_of_first, sites_of, warnings};
use crate::detect::branches::Branch;
use crate::detect::context::Context;
use crate::detect::{detect, limits};
use crate::edit::resize::resize;
use crate::error::RewriteError;
use crate::inspect::entries;
use crate::plan::resize::table::Interpolation;
use crate::plan::resize::{Plan, Wanted};
use crate::prove::{resized, stretched};
use crate::record::stretch::Stretched;
use crate::report::{Edit, Guarantee, Rewrite};
use crate::request::{ImageSize, LawName, Request, ScaleType};

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
    if plan.is_empty() {
        report.warnings = warnings(&before, None, None);
        return Ok(Rewritten::new(model.clone(), before, report));
    }
    let (mut next, applied) = resize(&context, plan)?;
    let after = detect(&next, &options);
    let result = Context {
        model: &next,
        found: &after,
    };
    resized::check(&context, &result, plan)?;
    let (from, to) = (entries(model, &before), entries(&next, &after));
    let sites = sites_of(&before, plan.findings(&before));
    let changed = Changed::of(sites, &applied);
    let own = edits(&before, std::slice::from_ref(&changed), &from, &to, &|_| {
        None
    });
    report.edits = or_of_first(own, &before, &changed);
    if let Wanted::Image { size, old, .. } = plan.wanted {
        say_size(&mut report.edits, old, size);
    }
    report.guarantee = Guarantee::NewFunction;
    report.limits.after = limits::all(next.graph(), &after);
    match plan.wanted {
        Wanted::Length { length, .. } => {
            stretched::ends_from(&result, length, &|_| true)?;
            let scaled = Stretched {
                scale: request.scale,
                corners: request.parameters.corners,
                continued: request.scale.is_none() && !plan.tables.is_empty(),
                ..Stretched::default()
            };
            stretch::record(&mut next, &report, scaled);
        }
        Wanted::Image { by, .. } if plan.interpolates() => {
            let scaled = Stretched {
                scale: Some(scale(by.rows)),
                corners: by.rows.corners,
                antialias: by.rows.antialias,
                biases: plan.has_new_biases().then(|| scale(by.biases)),
                ..Stretched::default()
            };
            stretch::record(&mut next, &report, scaled);
        }
        Wanted::Image { .. } | Wanted::OpenLength { .. } => {}
    }
    report.warnings = warnings(&after, None, plan.length());
    Ok(Rewritten::new(next, after, report))
}

/// Says of an edit at sites without encodings that the size of the image is what changed.
fn say_size(edits: &mut [Edit], [height, width]: [usize; 2], new: ImageSize) {
    let size = |size: ImageSize| json!({"image_size": size.to_string()});
    for edit in edits {
        if edit.from.is_null() && edit.to.is_null() {
            edit.from = size(ImageSize { height, width });
            edit.to = size(new);
        }
    }
}

/// The word for an interpolation.
fn scale(by: Interpolation) -> ScaleType {
    match by.by {
        Resizing::Linear => ScaleType::from(LawName::Linear),
        _ => ScaleType::Cubic,
    }
}
