//! Removes encodings from a graph.

mod bias;
mod broadcast;
mod convolution;
mod coordinates;
mod fused;
mod norm;
mod remainder;
pub(crate) mod replacements;
pub(crate) mod rotation;
mod stream;
mod sum;
mod terms;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod zero_propagation;

use posenc_ir::{Emitter, NodeId, Use};
use rustc_hash::FxHashSet;

use crate::detect::context::Context;
use crate::detect::finding::{Encoding, Finding};
use crate::error::{Refusal, RewriteError};
use crate::plan::swap::SwapPlan;
use bias::Biases;
use replacements::Replacements;
use rotation::RotatedRegion;
use stream::{StreamAdditions, Summands};
use zero_propagation::ZeroPropagation;

/// Something to remove before the scores, by the node where it ends.
enum Removal<'a> {
    /// What a node adds to the residual stream.
    Summands(NodeId),
    /// A convolution that is added to its input.
    Convolution(Use),
    /// A rotation of queries, keys or values.
    Rotation(RotatedRegion<'a>),
}

/// Removes every encoding of the sites of a plan. An encoding that applies to a whole stack is
/// removed only if all sites of the stack are selected.
pub(crate) fn remove(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    plan: &SwapPlan,
) -> Result<(), RewriteError> {
    let rotated: FxHashSet<usize> = context
        .found
        .unfitted_rotations
        .iter()
        .map(|(site, _)| *site)
        .collect();
    for refused in &context.found.not_rotary {
        // A rotation of both can be removed whatever its angles are.
        if plan.has(refused.site) && !rotated.contains(&refused.site) {
            return Err(context.refuse(refused.node, &refused.why));
        }
    }
    remove_before_scores(out, context, plan)?;
    remove_from_scores(out, context, plan)?;
    // New values that are not needed after all.
    out.omit_unused();
    Ok(())
}

/// Removes biases of the scores and terms, whatever their family.
fn remove_from_scores(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    plan: &SwapPlan,
) -> Result<(), RewriteError> {
    let mut zeros = ZeroPropagation::new(context);
    let mut biases = Biases::new(context);
    for finding in &context.found.findings {
        let sites = finding.sites.iter().copied();
        let sites: Vec<usize> = sites.filter(|site| plan.has(*site)).collect();
        if sites.is_empty()
            || finding.encoding.is_absolute()
            || matches!(finding.encoding, Encoding::Axial(_))
        {
            continue;
        }
        if terms::is_term(context, finding) {
            terms::remove(out, context, &mut zeros, finding, &sites)?;
        } else if bias::is_bias(context, finding) {
            for site in sites {
                biases.remove(out, &mut zeros, context.site(site))?;
            }
        }
    }
    zeros.finish(out)
}

/// Removes what acts on queries, keys and values, or on the stream that they are projected from.
fn remove_before_scores(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    plan: &SwapPlan,
) -> Result<(), RewriteError> {
    let stream = StreamAdditions::new(context);
    let Some(found) = found_before_scores(context, plan, &stream)? else {
        return Ok(());
    };
    let summands = Summands::of(context, &stream, &found.summands)?;
    let mut removals: Vec<Removal<'_>> = vec![];
    removals.extend(found.convolutions.into_iter().map(Removal::Convolution));
    removals.extend(summands.nodes().map(Removal::Summands));
    let rotated = rotation::rotated_regions(context, plan)?;
    removals.extend(rotated.into_iter().map(Removal::Rotation));
    // A later removal reads the replacements of earlier ones.
    removals.sort_by_key(|removal| {
        let node = match removal {
            Removal::Summands(id) => Some(*id),
            Removal::Convolution(at) => Some(at.node),
            Removal::Rotation(rotated) => rotated.node(context),
        };
        node.map(|node| context.found.trace.step(node))
    });
    let mut replacements = Replacements::new(context);
    for removal in &removals {
        match removal {
            Removal::Summands(id) => summands.remove(out, &mut replacements, *id)?,
            Removal::Convolution(at) => convolution::remove(out, context, &mut replacements, *at)?,
            Removal::Rotation(rotated) => rotated.remove(out, context, &mut replacements)?,
        }
    }
    replacements.apply(out)
}

/// Findings that enter the residual stream.
#[derive(Default)]
struct FoundBeforeScores<'a> {
    summands: Vec<&'a Finding>,
    convolutions: Vec<Use>,
}

/// The findings of a plan that enter the residual stream; `None` if one of an unrecognized
/// encoding has no node.
///
/// # Errors
/// If an encoding is not recognized, or applies to more layers than the plan selects.
fn found_before_scores<'a>(
    context: &Context<'a>,
    plan: &SwapPlan,
    stream: &StreamAdditions<'_>,
) -> Result<Option<FoundBeforeScores<'a>>, RewriteError> {
    let mut found = FoundBeforeScores::default();
    for finding in &context.found.findings {
        if !plan.removes(context, finding) {
            let seen = finding.sites.iter().any(|site| plan.has(*site));
            if seen {
                let kind = finding.encoding.kind();
                let why =
                    format!("the {kind} encoding applies to all layers; `layers` cannot be used");
                return Err(Refusal::invalid(why).into());
            }
            continue;
        }
        match &finding.encoding {
            Encoding::Learned(_) | Encoding::Sinusoidal(_) => found.summands.push(finding),
            Encoding::Conv(_) => found.convolutions.extend(&finding.entries),
            // A summand can be removed whatever it is.
            Encoding::Unknown if stream.adds(finding) && is_selected(context, finding, plan) => {
                found.summands.push(finding);
            }
            Encoding::Unknown
                if terms::is_term(context, finding) || bias::is_bias(context, finding) => {}
            Encoding::Unknown => {
                let why = finding.evidence.first().map_or("", String::as_str);
                let why = format!("cannot remove an unrecognized encoding ({why})");
                let site = finding.sites.first().map(|site| context.site(*site).node);
                return match finding.node().or(site) {
                    Some(node) => Err(context.refuse(node, why)),
                    None => Ok(None),
                };
            }
            _ => {}
        }
    }
    Ok(Some(found))
}

/// Whether a plan selects all sites of self-attention that a finding applies to.
fn is_selected(context: &Context<'_>, finding: &Finding, plan: &SwapPlan) -> bool {
    let mut own = finding.sites.iter().filter(|s| !context.site(**s).cross);
    own.all(|site| plan.has(*site))
}
