//! What detection reads of the inserted encoding, compared with the plan.

use crate::detect::context::Context;
use crate::detect::finding::{Encoding, Finding};
use crate::error::{Refusal, RewriteError};
use crate::plan::swap::Group;
use crate::plan::swap::spec::EncodingSpec;
use crate::prove::swap::Proof;
use crate::prove::tolerance;
use crate::report::SiteCheck;
use posenc_encodings::families::sinusoidal::{Denominator, Sinusoidal};

/// Checks that the graph computes what was planned: rotations and embeddings by what detection
/// reads, scores and weighted values by their formula.
///
/// # Errors
/// When a site does not match the plan, with the site.
pub(crate) fn check(context: &Context<'_>, proof: &Proof) -> Result<(), RewriteError> {
    for group in &proof.plan.groups {
        for site in &group.sites {
            match &group.new {
                EncodingSpec::Rope { .. } => check_rotation(context, group, *site)?,
                EncodingSpec::Learned { .. }
                | EncodingSpec::Sinusoidal { .. }
                | EncodingSpec::Conv { .. } => {
                    check_absolute(context, group, *site)?;
                }
                // The formula is compared below.
                _ => {}
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

fn check_rotation(context: &Context<'_>, group: &Group, site: usize) -> Result<(), RewriteError> {
    let EncodingSpec::Rope { rope, layout } = &group.new else {
        return Ok(());
    };
    let found = context.found.rotary.iter().find(|r| r.site == site);
    let Some(found) = found else {
        let why = "cannot read the inserted rotation back";
        return Err(context.refuse(context.site(site).node, why));
    };
    let dtype = context.found.trace.get(found.query.region.output).dtype;
    let allowed = tolerance::of_frequencies(dtype);
    let d = rope.rotary_dim as f64;
    for half in [&found.query, &found.key] {
        let now = &half.rotation.rope;
        let want = (0..rope.rotary_dim / 2).map(|i| rope.theta.powf(-2.0 * i as f64 / d));
        let frequencies_match = now.inv_freq.len() == rope.rotary_dim / 2
            && now
                .inv_freq
                .iter()
                .zip(want)
                .all(|(a, b)| (a - b).abs() <= allowed * b)
            && (now.attention_factor - 1.0).abs() <= allowed;
        // A single pair fits either layout.
        let layout_matches = now.layout == Some(*layout) || rope.rotary_dim == 2;
        if !frequencies_match || !layout_matches {
            let why = "the inserted rotation does not match the request";
            return Err(context.refuse(found.node, why));
        }
    }
    Ok(())
}

fn check_absolute(context: &Context<'_>, group: &Group, site: usize) -> Result<(), RewriteError> {
    let kind = group.new.kind();
    let own = |f: &&Finding| f.sites.contains(&site) && f.encoding.is_absolute();
    let found = context.found.findings.iter().find(own);
    let matches = found.is_some_and(|f| match (&f.encoding, &group.new) {
        (Encoding::Learned(found), EncodingSpec::Learned { rows, .. }) => {
            found.table_rows == *rows && found.offset == 0
        }
        // A learned table may contain sinusoids.
        (Encoding::Sinusoidal(found), EncodingSpec::Learned { rows, .. }) => {
            found.max_positions == Some(*rows)
        }
        (Encoding::Sinusoidal(found), EncodingSpec::Sinusoidal { layout, base, rows }) => {
            let plain = Sinusoidal {
                layout: *layout,
                denominator: Denominator::Pairs,
                cosines_first: false,
                factor: 1.0,
                amplitude: 1.0,
                ..found.clone()
            };
            let rows = rows.is_none_or(|n| found.max_positions == Some(n));
            plain == *found && rows && (found.base - base).abs() <= 1e-3 * base
        }
        (Encoding::Conv(found), EncodingSpec::Conv { kernel, .. }) => found.kernel == [*kernel],
        _ => false,
    });
    if matches {
        return Ok(());
    }
    let why = format!("the inserted {kind} encoding does not match the request");
    Err(context.refuse(context.site(site).node, why))
}
