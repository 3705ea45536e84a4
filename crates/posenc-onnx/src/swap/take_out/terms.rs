//! Terms of vectors by distance: Shaw's, Transformer-XL's, those of disentangled attention.
//!
//! The products in which content meets the vectors give way, and so do the sums that they join.
//! What divides or multiplies the whole of the scores stays: of disentangled attention, content
//! keeps the divisor √(d·(1 + terms)) that the terms had made larger.

mod content;
#[cfg(test)]
mod tests;

use posenc_ir::Emitter;

use super::zeros::Zeros;
use crate::detect::joins;
use crate::encoding::{Encoding, Finding};
use crate::rewrite::RewriteError;
use crate::swap::Ground;

/// Takes the terms of a finding out.
///
/// # Errors
/// Where a term goes through something else before it joins the scores or the values.
pub(super) fn take_out(
    out: &mut Emitter<'_>,
    ground: &Ground<'_>,
    zeros: &mut Zeros<'_>,
    finding: &Finding,
    sites: &[usize],
) -> Result<(), RewriteError> {
    zeros.follow(&finding.entries);
    for site in sites {
        let found = ground.found;
        let joins = joins(
            ground.graph(),
            &found.classes,
            &found.trace,
            ground.site(*site),
        );
        zeros.follow(&joins.nothing);
    }
    if matches!(
        finding.encoding,
        Encoding::TransformerXl(_) | Encoding::Unknown
    ) {
        for site in sites {
            content::take_out(out, ground, zeros, ground.site(*site), &finding.entries)?;
        }
    }
    Ok(())
}

/// Whether what was found enters by products of vectors with content or with the weights of
/// attention.
pub(super) fn enter_by(ground: &Ground<'_>, finding: &Finding) -> bool {
    let found = ground.found;
    let Some(site) = finding.sites.first().map(|site| ground.site(*site)) else {
        return false;
    };
    let named = matches!(
        finding.encoding,
        Encoding::Shaw(_) | Encoding::TransformerXl(_) | Encoding::Disentangled(_)
    );
    let meetings = || joins(ground.graph(), &found.classes, &found.trace, site).meetings;
    named
        || meetings()
            .iter()
            .any(|m| finding.entries.contains(&m.vectors))
}
