//! What detection reads of the inserted encoding, compared with the plan.

use crate::detect::context::Context;
use crate::detect::finding::Finding;
use crate::error::{Refusal, RewriteError};
use crate::plan::swap::spec::EncodingSpec;
use crate::prove::swap::Proof;
use crate::prove::tolerance;
use crate::report::SiteCheck;
use posenc_encodings::input_term::InputTerm;
use posenc_encodings::rotation::Rotation;

/// Checks that the graph computes what was planned: rotations and embeddings by what detection
/// reads, scores and weighted values by their formula.
///
/// # Errors
/// When a site does not match the plan, with the site.
pub(crate) fn check(context: &Context<'_>, proof: &Proof) -> Result<(), RewriteError> {
    for group in &proof.plan.groups {
        for site in &group.sites {
            match &group.new {
                EncodingSpec::Rotation(new) => check_rotation(context, &**new, *site)?,
                EncodingSpec::InputTerm(spec) => check_absolute(context, &*spec.term, *site)?,
                // The formula is compared below.
                EncodingSpec::ScoreBias(_) | EncodingSpec::ScoreTerm(_) => {}
            }
        }
    }
    let checks = proof.evaluate();
    let checks = checks.map_err(|e| Refusal::unsupported(e.to_string()))?;
    match checks.iter().find(|check| !check.ok) {
        None => Ok(()),
        Some(failed) => Err(Refusal::unsupported(difference(failed)).into()),
    }
}

/// A failed check in words.
fn difference(failed: &SiteCheck) -> String {
    let (site, quantity, bound) = (&failed.site, &failed.quantity, failed.bound);
    if quantity == "mask" {
        return format!("{site}: masked keys became visible");
    }
    let error = failed
        .max_error
        .map_or("NaN".into(), |e| format!("{e:.1e}"));
    format!("{site}: {quantity} differ from the formula by {error}, more than {bound:.1e}")
}

fn check_rotation(
    context: &Context<'_>,
    new: &dyn Rotation,
    site: usize,
) -> Result<(), RewriteError> {
    let found = context.found.rotary.iter().find(|r| r.site == site);
    let Some(found) = found else {
        let why = "cannot read the inserted rotation back";
        return Err(context.refuse(context.site(site).node, why));
    };
    let dtype = context.found.trace.get(found.query.region.output).dtype;
    let allowed = tolerance::of_frequencies(dtype);
    let planned = new.angles();
    for half in [&found.query, &found.key] {
        if !planned.matches(&half.rotation.rope.angles(), allowed) {
            let why = "the inserted rotation does not match the request";
            return Err(context.refuse(found.node, why));
        }
    }
    Ok(())
}

fn check_absolute(
    context: &Context<'_>,
    new: &dyn InputTerm,
    site: usize,
) -> Result<(), RewriteError> {
    let own = |f: &&Finding| f.sites.contains(&site) && f.encoding.is_absolute();
    let found = context.found.findings.iter().find(own);
    let found = found.and_then(|f| f.encoding.known());
    if found.is_some_and(|found| new.is_read_as(found)) {
        return Ok(());
    }
    let kind = new.word();
    let why = format!("the inserted {kind} encoding does not match the request");
    Err(context.refuse(context.site(site).node, why))
}
