//! What has to hold of a graph after each patch, read off the graph itself.

use posenc_ir::NodeId;

use super::{Asked, Ground};
use crate::attention::Site;
use crate::detect::Detection;
use crate::kind::Kind;
use crate::rewrite::RewriteError;

/// Nothing encodes position any more at the sites that are asked for, and the sites are those of
/// `before`.
///
/// # Errors
/// Where something is left, with its node.
pub(super) fn is_bare(
    ground: &Ground<'_>,
    before: &Detection,
    asked: &Asked,
) -> Result<(), RewriteError> {
    same_sites(ground, before)?;
    let found = ground.found;
    let left = |node: NodeId, kind: Kind| {
        let why = format!("{kind} is left, and the sites that are asked for see it");
        Err(ground.refuse(node, why))
    };
    if let Some(refused) = found.unknown.iter().find(|r| asked.has(r.site)) {
        return Err(ground.refuse(refused.node, &refused.why));
    }
    if let Some(rotary) = found.rotary.iter().find(|r| asked.has(r.site)) {
        return left(rotary.node, Kind::Rope);
    }
    for finding in &ground.survey.findings {
        if asked.speaks_of(ground, finding) {
            let first = finding.sites.first().map(|site| ground.site(*site).node);
            return match finding.node().or(first) {
                Some(node) => left(node, finding.encoding.kind()),
                None => Ok(()),
            };
        }
    }
    Ok(())
}

/// The sites are those of `before`.
fn same_sites(ground: &Ground<'_>, before: &Detection) -> Result<(), RewriteError> {
    let (old, new) = (&before.attention, &ground.found.attention);
    let graph = ground.graph();
    for (old, new) in old.iter().zip(new) {
        // An operator that did the rotation itself was replaced.
        let same = old.node == new.node || graph.is_removed(old.node);
        let shape = |site: &Site| (site.heads, site.kv_heads, site.head_dim, site.cross);
        let alike = shape(old) == shape(new) && old.mask.causal == new.mask.causal;
        if !same || !alike {
            let why = "without its encoding, attention reads as another";
            return Err(ground.refuse(new.node, why));
        }
    }
    if let Some(site) = old.get(new.len()) {
        let why = "without its encoding, it is not found as attention";
        return Err(ground.refuse(site.node, why));
    }
    if let Some(site) = new.get(old.len()) {
        let why = "without its encoding, this reads as attention too";
        return Err(ground.refuse(site.node, why));
    }
    Ok(())
}
