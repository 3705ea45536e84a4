//! Taking encodings out of a graph.

mod bias;
mod convolution;
mod rotation;
mod stream;
mod terms;

use posenc_ir::Emitter;

use super::{Asked, Ground};
use crate::encoding::Encoding;
use crate::rewrite::RewriteError;

/// Takes out every encoding that the sites of `asked` see. What stands before all sites of a stack
/// goes only where all of them are asked for.
pub(super) fn take_out(
    out: &mut Emitter<'_>,
    ground: &Ground<'_>,
    asked: &Asked,
) -> Result<(), RewriteError> {
    let chosen = |site: &usize| asked.sites.contains(site);
    for refused in &ground.found.unknown {
        if chosen(&refused.site) {
            return Err(ground.refuse(refused.node, &refused.why));
        }
    }
    for rotary in ground.found.rotary.iter().filter(|r| chosen(&r.site)) {
        rotation::take_out(out, ground, rotary)?;
    }
    for finding in &ground.survey.findings {
        let sites: Vec<usize> = finding.sites.iter().copied().filter(chosen).collect();
        if sites.is_empty() {
            continue;
        }
        if finding.encoding.is_absolute() && sites.len() < finding.sites.len() {
            // Other layers keep it, so it stays before all of them.
            continue;
        }
        match &finding.encoding {
            Encoding::Learned(_) | Encoding::Sinusoidal(_) => {
                stream::take_out(out, ground, finding)?;
            }
            Encoding::Conv(_) => convolution::take_out(out, ground, finding)?,
            Encoding::Alibi(_) | Encoding::T5Bias(_) | Encoding::RelativeBias(_) => {
                bias::take_out(out, ground, finding, &sites)?;
            }
            Encoding::Shaw(_) | Encoding::TransformerXl(_) | Encoding::Disentangled(_) => {
                terms::take_out(out, ground, finding, &sites)?;
            }
            Encoding::Axial(_) | Encoding::Unknown => {
                let kind = finding.encoding.kind();
                let why = match finding.evidence.first() {
                    Some(why) => {
                        format!("an encoding that no family fits ({why}) cannot be taken out")
                    }
                    None => format!("{kind} on a grid cannot be taken out yet"),
                };
                let site = ground.site(sites[0]);
                return Err(ground.refuse(finding.node().unwrap_or(site.node), why));
            }
        }
    }
    Ok(())
}
