//! Learned queries that stand for places: a row for each token.

use posenc_ir::NodeId;

use super::found::Found;
use super::runs::{BUDGET, Runs};
use crate::attention::Site;
use crate::attention::latents::are_told_apart;

/// How many tokens more another run has.
const MORE: usize = 3;

/// One sentence for each site whose learned queries are as many as the tokens, whatever their number, and
/// for each node where rows that such queries gathered meet tokens one by one.
pub(super) fn unread(runs: &Runs<'_>, met: &[NodeId]) -> Vec<String> {
    let (graph, found) = (runs.model.graph(), runs.found);
    let rows = |node: &NodeId| {
        let place = graph.place(*node);
        format!(
            "{place}: rows that learned queries gathered meet tokens one by one: these queries stand for \
             places, and are not read"
        )
    };
    let mut all: Vec<String> = met.iter().map(rows).collect();
    all.extend(varying(found, runs).into_iter().map(|site| {
        let name = &found.attention[site].name;
        format!(
            "{name}: there are as many learned queries as tokens: they stand for places, and are not read"
        )
    }));
    all
}

/// The sites of which a longer sequence has more learned queries.
fn varying(found: &Found, runs: &Runs<'_>) -> Vec<usize> {
    let sites = found.attention.iter();
    let learned: Vec<_> = sites
        .filter(|site| are_told_apart(&found.classes, &found.trace, site))
        .collect();
    let longer = match learned.is_empty() {
        true => None,
        false => runs.once(found.lengths.sequence + MORE, &BUDGET),
    };
    let Some(longer) = longer else {
        return vec![];
    };
    let varies = |site: &&&Site| {
        let axis = site.query.lane.sequence;
        let [short, long] = [&found.trace, &longer].map(|trace| {
            let dims = trace.get(site.query.value).dims.as_deref();
            dims.and_then(|dims| dims.get(axis)).copied()
        });
        short != long
    };
    learned
        .iter()
        .filter(varies)
        .map(|site| site.index)
        .collect()
}
