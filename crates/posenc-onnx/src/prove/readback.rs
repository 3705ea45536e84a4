//! What a graph shows of the encoding that was put in, read off the graph itself.

use posenc_ir::DType;

use crate::detect::context::Context;
use crate::detect::finding::{Encoding, Finding};
use crate::error::RewriteError;
use crate::plan::swap::spec::EncodingSpec;
use crate::plan::swap::{Group, SwapPlan};
use crate::prove::swap::Proof;
use posenc_encodings::families::sinusoidal::{Denominator, Sinusoidal};

/// Frequencies, as a share of themselves.
const NEAR: f64 = 1e-5;

/// Holds the graph to what was asked for: rotations and rows by what detection reads of them,
/// scores and weighted values by their formula.
///
/// # Errors
/// Where a site shows something else, with the site.
pub(crate) fn is_as_asked(context: &Context<'_>, proof: &Proof) -> Result<(), RewriteError> {
    let asked: &SwapPlan = &proof.asked;
    for group in &asked.groups {
        for site in &group.sites {
            match &group.new {
                EncodingSpec::Rope { .. } => turns(context, group, *site)?,
                EncodingSpec::Learned { .. }
                | EncodingSpec::Sinusoidal { .. }
                | EncodingSpec::Conv { .. } => {
                    is_added(context, group, *site)?;
                }
                // Scores and weighted values are computed below.
                _ => {}
            }
        }
    }
    let checks = proof.evaluate();
    let checks = checks.map_err(|e| crate::error::Refusal::Unsupported(e.to_string()))?;
    match checks.iter().find(|check| !check.ok) {
        None => Ok(()),
        Some(check) if check.quantity == "mask" => {
            let why = format!("{}: what its mask hid can be seen now", check.site);
            Err(crate::error::Refusal::Unsupported(why).into())
        }
        Some(check) => {
            let off = check.max_error.map_or("NaN".into(), |e| format!("{e:.1e}"));
            let why = format!(
                "{}: its {} are off their formula by {off}, more than {:.1e}",
                check.site, check.quantity, check.bound
            );
            Err(crate::error::Refusal::Unsupported(why).into())
        }
    }
}

/// The site turns as asked for.
fn turns(context: &Context<'_>, group: &Group, site: usize) -> Result<(), RewriteError> {
    let EncodingSpec::Rope { rope, layout } = &group.new else {
        return Ok(());
    };
    let found = context.found.rotary.iter().find(|r| r.site == site);
    let Some(found) = found else {
        let why = "the rotation that was put in cannot be read back";
        return Err(context.refuse(context.site(site).node, why));
    };
    let allowed = match context.found.trace.get(found.query.region.output).dtype {
        Some(DType::F16) => 4e-3,
        Some(DType::BF16) => 2e-2,
        _ => NEAR,
    };
    let d = rope.rotary_dim as f64;
    for half in [&found.query, &found.key] {
        let now = &half.rotation.rope;
        let want = (0..rope.rotary_dim / 2).map(|i| rope.theta.powf(-2.0 * i as f64 / d));
        let near = now.inv_freq.len() == rope.rotary_dim / 2
            && now
                .inv_freq
                .iter()
                .zip(want)
                .all(|(a, b)| (a - b).abs() <= allowed * b)
            && (now.attention_factor - 1.0).abs() <= allowed;
        // One pair is of either layout.
        let alike = now.layout == Some(*layout) || rope.rotary_dim == 2;
        if !near || !alike {
            let why = "the rotation that was put in reads otherwise than asked for";
            return Err(context.refuse(found.node, why));
        }
    }
    Ok(())
}

/// What is added before the site is what was asked for.
fn is_added(context: &Context<'_>, group: &Group, site: usize) -> Result<(), RewriteError> {
    let kind = group.new.kind();
    let own = |f: &&Finding| f.sites.contains(&site) && f.encoding.is_absolute();
    let found = context.survey.findings.iter().find(own);
    let as_asked = found.is_some_and(|f| match (&f.encoding, &group.new) {
        (Encoding::Learned(found), EncodingSpec::Learned { rows, .. }) => {
            found.table_rows == *rows && found.offset == 0
        }
        // A learned table may hold sines.
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
    match as_asked {
        true => Ok(()),
        false => {
            let why = format!("the {kind} encoding that was put in cannot be read back");
            Err(context.refuse(context.site(site).node, why))
        }
    }
}
