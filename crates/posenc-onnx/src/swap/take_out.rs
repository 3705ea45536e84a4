//! Taking encodings out of a graph.

mod bias;
mod convolution;
mod coordinates;
mod fused;
mod gone;
mod norm;
mod rest;
mod rotation;
mod stream;
mod terms;
#[cfg(test)]
mod testing;
mod zeros;

#[cfg(test)]
mod tests;

use posenc_ir::{Emitter, NodeId, Use};
use rustc_hash::FxHashSet;

use super::{Asked, Ground};
use crate::encoding::{Encoding, Finding};
use crate::rewrite::{Refusal, RewriteError};
use bias::Biases;
use gone::Gone;
use posenc_encodings::kind::Kind;
use rotation::Turned;
use stream::{Summands, Sums};
use zeros::Zeros;

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
pub(super) fn take_out(
    out: &mut Emitter<'_>,
    ground: &Ground<'_>,
    asked: &Asked,
) -> Result<(), RewriteError> {
    let turning: FxHashSet<usize> = ground.found.odd.iter().map(|(site, _)| *site).collect();
    for refused in &ground.found.unknown {
        // What turns can be kept from it, whatever the angles.
        if asked.has(refused.site) && !turning.contains(&refused.site) {
            return Err(ground.refuse(refused.node, &refused.why));
        }
    }
    before_scores(out, ground, asked)?;
    let mut zeros = Zeros::new(ground);
    let mut biases = Biases::new(ground);
    for finding in &ground.survey.findings {
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
            _ if terms::enter_by(ground, finding) => {
                terms::take_out(out, ground, &mut zeros, finding, &sites)?;
            }
            _ if bias::enters_by(ground, finding) => {
                for site in sites {
                    biases.take_out(out, &mut zeros, ground.site(site))?;
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
    ground: &Ground<'_>,
    asked: &Asked,
) -> Result<(), RewriteError> {
    let mut found = vec![];
    let mut jobs = vec![];
    let stream = Sums::new(ground);
    for finding in &ground.survey.findings {
        if !asked.speaks_of(ground, finding) {
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
            Encoding::Unknown if stream.adds(finding) && is_seen_alone(ground, finding, asked) => {
                found.push(finding);
            }
            Encoding::Unknown
                if terms::enter_by(ground, finding) || bias::enters_by(ground, finding) => {}
            Encoding::Unknown => {
                let why = finding.evidence.first().map_or("", String::as_str);
                let why = format!("an encoding that no family fits ({why}) cannot be taken out");
                let node = finding.node().or(node_of(ground, finding));
                return match node {
                    Some(node) => Err(ground.refuse(node, why)),
                    None => Ok(()),
                };
            }
            _ => {}
        }
    }
    let summands = Summands::of(ground, &stream, &found)?;
    jobs.extend(summands.nodes().map(Job::Summands));
    let turned = rotation::turned(ground, asked)?;
    jobs.extend(turned.into_iter().map(Job::Rotation));
    // What stands in for a value is asked for behind it.
    jobs.sort_by_key(|job| {
        let node = match job {
            Job::Summands(id) => Some(*id),
            Job::Convolution(at) => Some(at.node),
            Job::Rotation(turned) => turned.node(ground),
        };
        node.map(|node| ground.found.trace.turn(node))
    });
    let mut gone = Gone::new(ground);
    for job in &jobs {
        match job {
            Job::Summands(id) => summands.take_out(out, &mut gone, *id)?,
            Job::Convolution(at) => convolution::take_out(out, ground, &mut gone, *at)?,
            Job::Rotation(turned) => turned.take_out(out, ground, &mut gone)?,
        }
    }
    gone.apply(out)
}

/// Whether all sites of self-attention that see what a finding tells of are asked for.
fn is_seen_alone(ground: &Ground<'_>, finding: &Finding, asked: &Asked) -> bool {
    let mut own = finding.sites.iter().filter(|s| !ground.site(**s).cross);
    own.all(|site| asked.has(*site))
}

fn node_of(ground: &Ground<'_>, finding: &Finding) -> Option<NodeId> {
    finding.sites.first().map(|site| ground.site(*site).node)
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
