//! Removes terms of vectors by distance: Shaw, Transformer-XL, disentangled attention.
//!
//! The products of content and vectors are removed, and the sums that they join lose them. A scale
//! of the whole scores is kept: without the terms of disentangled attention, the scores keep the
//! divisor √(d·(1 + terms)).

mod content;
#[cfg(test)]
mod tests;

use posenc_ir::Emitter;

use crate::detect::context::Context;
use crate::detect::finding::{Encoding, Finding};
use crate::detect::joins;
use crate::edit::remove::zero_propagation::ZeroPropagation;
use crate::error::RewriteError;

/// Removes the terms of a finding.
///
/// # Errors
/// If a term passes an unsupported operator before it joins the scores or the values.
pub(crate) fn remove(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    zeros: &mut ZeroPropagation<'_>,
    finding: &Finding,
    sites: &[usize],
) -> Result<(), RewriteError> {
    zeros.add_zeros(&finding.entries);
    for site in sites {
        let found = context.found;
        let joins = joins(
            context.graph(),
            &found.classes,
            &found.trace,
            context.site(*site),
        );
        zeros.add_zeros(&joins.nothing);
    }
    if matches!(
        finding.encoding,
        Encoding::TransformerXl(_) | Encoding::Unknown
    ) {
        for site in sites {
            content::remove(out, context, zeros, context.site(*site), &finding.entries)?;
        }
    }
    Ok(())
}

/// Whether a finding enters by products of vectors with content or with the weights of attention.
pub(crate) fn is_term(context: &Context<'_>, finding: &Finding) -> bool {
    let found = context.found;
    let Some(site) = finding.sites.first().map(|site| context.site(*site)) else {
        return false;
    };
    let named = matches!(
        finding.encoding,
        Encoding::Shaw(_) | Encoding::TransformerXl(_) | Encoding::Disentangled(_)
    );
    let meetings = || joins(context.graph(), &found.classes, &found.trace, site).meetings;
    named
        || meetings()
            .iter()
            .any(|m| finding.entries.contains(&m.vectors))
}
