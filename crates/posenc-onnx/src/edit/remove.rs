//! Taking encodings out of a graph.

mod bias;
mod convolution;
mod coordinates;
mod fused;
mod norm;
pub mod replacements;
mod rest;
mod rotation;
mod stream;
mod terms;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod zero_propagation;

use posenc_ir::{Emitter, NodeId, Use};
use rustc_hash::FxHashSet;

use crate::detect::context::Context;
use crate::detect::finding::{Encoding, Finding};
use crate::error::{Refusal, RewriteError};
use crate::plan::swap::SwapPlan;
use bias::Biases;
use posenc_encodings::kind::Kind;
use replacements::Replacements;
use rotation::Turned;
use stream::{Summands, Sums};
use zero_propagation::ZeroPropagation;

/// Something that stands before sites and rotations, at the node where it ends.
enum Job<'a> {
    /// What a node adds to the residual stream.
    Summands(NodeId),
    /// A convolution that is added to its input.
    Convolution(Use),
    /// A rotation of queries or keys.
    Rotation(Turned<'a>),
}

/// Takes out every encoding that the sites of `asked` see. What stands before all sites of a stack
/// goes only where all of them are asked for.
pub(crate) fn remove(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    asked: &SwapPlan,
) -> Result<(), RewriteError> {
    let turning: FxHashSet<usize> = context.found.odd.iter().map(|(site, _)| *site).collect();
    for refused in &context.found.unknown {
        // What turns can be kept from it, whatever the angles.
        if asked.has(refused.site) && !turning.contains(&refused.site) {
            return Err(context.refuse(refused.node, &refused.why));
        }
    }
    before_scores(out, context, asked)?;
    let mut zeros = ZeroPropagation::new(context);
    let mut biases = Biases::new(context);
    for finding in &context.survey.findings {
        let sites: Vec<usize> = finding
            .sites
            .iter()
            .copied()
            .filter(|s| asked.has(*s))
            .collect();
        if sites.is_empty() || finding.encoding.is_absolute() {
            continue;
        }
        match &finding.encoding {
            Encoding::Axial(_) => {}
            // Biases and terms go whatever their family, a bias by rows and columns that queries
            // are a part of among them.
            _ if terms::enter_by(context, finding) => {
                terms::remove(out, context, &mut zeros, finding, &sites)?;
            }
            _ if bias::enters_by(context, finding) => {
                for site in sites {
                    biases.remove(out, &mut zeros, context.site(site))?;
                }
            }
            _ => {}
        }
    }
    zeros.finish(out)?;
    // What was made on the way to something smaller.
    out.release_unread();
    Ok(())
}

/// Takes out what acts on queries and keys, or on what they are projected from.
fn before_scores(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    asked: &SwapPlan,
) -> Result<(), RewriteError> {
    let mut found = vec![];
    let mut jobs = vec![];
    let stream = Sums::new(context);
    for finding in &context.survey.findings {
        if !asked.removes(context, finding) {
            let seen = finding.sites.iter().any(|site| asked.has(*site));
            if asked.kind == Kind::None && seen {
                let kind = finding.encoding.kind();
                let why = format!("{kind} stands before all layers; leave out --layers");
                return Err(Refusal::Usage(why).into());
            }
            continue;
        }
        let entries = finding.entries.iter().copied();
        match &finding.encoding {
            Encoding::Learned(_) | Encoding::Sinusoidal(_) => found.push(finding),
            Encoding::Conv(_) => jobs.extend(entries.map(Job::Convolution)),
            // Whatever it is, a summand can be left out.
            Encoding::Unknown if stream.adds(finding) && is_seen_alone(context, finding, asked) => {
                found.push(finding);
            }
            Encoding::Unknown
                if terms::enter_by(context, finding) || bias::enters_by(context, finding) => {}
            Encoding::Unknown => {
                let why = finding.evidence.first().map_or("", String::as_str);
                let why = format!("an encoding that no family fits ({why}) cannot be taken out");
                let node = finding.node().or(node_of(context, finding));
                return match node {
                    Some(node) => Err(context.refuse(node, why)),
                    None => Ok(()),
                };
            }
            _ => {}
        }
    }
    let summands = Summands::of(context, &stream, &found)?;
    jobs.extend(summands.nodes().map(Job::Summands));
    let turned = rotation::turned(context, asked)?;
    jobs.extend(turned.into_iter().map(Job::Rotation));
    // What stands in for a value is asked for behind it.
    jobs.sort_by_key(|job| {
        let node = match job {
            Job::Summands(id) => Some(*id),
            Job::Convolution(at) => Some(at.node),
            Job::Rotation(turned) => turned.node(context),
        };
        node.map(|node| context.found.trace.turn(node))
    });
    let mut gone = Replacements::new(context);
    for job in &jobs {
        match job {
            Job::Summands(id) => summands.remove(out, &mut gone, *id)?,
            Job::Convolution(at) => convolution::remove(out, context, &mut gone, *at)?,
            Job::Rotation(turned) => turned.remove(out, context, &mut gone)?,
        }
    }
    gone.apply(out)
}

/// Whether all sites of self-attention that see what a finding tells of are asked for.
fn is_seen_alone(context: &Context<'_>, finding: &Finding, asked: &SwapPlan) -> bool {
    let mut own = finding.sites.iter().filter(|s| !context.site(**s).cross);
    own.all(|site| asked.has(*site))
}

fn node_of(context: &Context<'_>, finding: &Finding) -> Option<NodeId> {
    finding.sites.first().map(|site| context.site(*site).node)
}

/// The dimensions of two values together; `None` where they do not fit.
fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let (long, short) = if a.len() < b.len() { (b, a) } else { (a, b) };
    let mut dims = long.to_vec();
    let offset = long.len() - short.len();
    for (i, n) in short.iter().enumerate() {
        let own = &mut dims[offset + i];
        match (*own, *n) {
            (a, b) if a == b => {}
            (1, b) => *own = b,
            (_, 1) => {}
            _ => return None,
        }
    }
    Some(dims)
}
