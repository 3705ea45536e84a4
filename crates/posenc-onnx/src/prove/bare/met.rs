//! Positions that the graph shows without a run.

use posenc_ir::{Graph, Model, NodeId};
use rustc_hash::FxHashSet;

use crate::detect::Found;
use crate::detect::found::Refused;
use crate::report::SiteCheck;

/// A failed check for each place where numbers that change from token to token still meet content, which
/// the graph shows without a run. Encodings that were to stay are let through.
pub(super) fn met((model, found): (&Model, &Found), asked: &[usize]) -> Vec<SiteCheck> {
    let graph = model.graph();
    let at_cross = at_cross(graph, found, asked);
    if !at_cross.is_empty() {
        return at_cross;
    }
    let Some(kept) = kept(found, asked) else {
        return vec![];
    };
    let all = found.met.iter().chain(&found.later);
    let left = all.filter(|met| !kept.contains(&met.node));
    left.map(|met| SiteCheck {
        site: graph.place(met.node).to_string(),
        quantity: format!(
            "the numbers {} of different tokens",
            graph.name(met.numbers)
        ),
        max_error: met.change,
        bound: 0.0,
        ok: false,
    })
    .collect()
}

/// A failed check for each position that was not read and reaches cross-attention, where all
/// self-attention was asked for: it may be in what the encoder gives.
fn at_cross(graph: &Graph, found: &Found, asked: &[usize]) -> Vec<SiteCheck> {
    let mut own = found.attention.iter().filter(|site| !site.cross);
    if !own.all(|site| asked.contains(&site.index)) {
        return vec![];
    }
    let is_cross = |refused: &&Refused| found.attention[refused.site].cross;
    let left = found.not_rotary.iter().filter(is_cross);
    left.map(|refused| SiteCheck {
        site: graph.place(refused.node).to_string(),
        quantity: format!(
            "the tokens that {} reads",
            found.attention[refused.site].name
        ),
        max_error: None,
        bound: 0.0,
        ok: false,
    })
    .collect()
}

/// Where the encodings of sites that were not asked for meet content; `None` where that is not known.
fn kept(found: &Found, asked: &[usize]) -> Option<FxHashSet<NodeId>> {
    let stays = |site: &usize| !asked.contains(site);
    if found.not_rotary.iter().any(|refused| stays(&refused.site)) {
        return None;
    }
    let rotary = found.rotary.iter().filter(|rotary| stays(&rotary.site));
    let regions = rotary.flat_map(|rotary| [&rotary.query.region, &rotary.key.region]);
    let axial = found.axial.iter();
    let axial = axial.filter(|axial| axial.finding.sites.iter().any(stays));
    let regions = regions.chain(axial.flat_map(|axial| &axial.regions));
    let findings = found.findings.iter().filter(|f| f.sites.iter().any(stays));
    let entries = regions.flat_map(|region| &region.entries);
    let entries = entries.chain(findings.flat_map(|f| &f.entries));
    Some(entries.map(|entry| entry.node).collect())
}
