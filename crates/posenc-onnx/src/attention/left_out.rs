//! Attention that is found, but not read: facts about it that everything else rests on are unknown.

use posenc_ir::Graph;
use posenc_ir::eval::Trace;

use super::site::Site;
use super::{order, parallel, pruned, scores};
use crate::graph::dataflow::Classes;
use crate::graph::mixing::Tokens;

/// The sites that are not read, by index, and why.
pub(crate) fn left_out(
    graph: &Graph,
    classes: &Classes,
    trace: &Trace,
    tokens: &Tokens,
    sites: &[Site],
) -> Vec<(usize, String)> {
    let branches = parallel::branches(graph, classes, sites);
    let chosen = pruned::chosen(graph, classes, tokens);
    let of = |site: &Site| -> Option<String> {
        let length = |operand: &super::Operand| {
            let dims = trace.get(operand.value).dims.as_ref()?;
            dims.get(operand.lane.sequence).copied()
        };
        if length(&site.query) == Some(0) {
            return Some("it has no queries in a short sequence".to_owned());
        }
        if scores::products(graph, classes, site) > 1 {
            return Some("its scores are computed from several products of content".to_owned());
        }
        if site.product.is_some() && site.plane.is_none() {
            return Some("its queries cannot be followed to the scores".to_owned());
        }
        let rows = site.scores.zip(site.plane).and_then(|(scores, [rows, _])| {
            let dims = trace.get(scores).dims.as_ref()?;
            dims.get(rows).copied()
        });
        if let (Some(rows), Some(queries)) = (rows, length(&site.query))
            && rows != queries
        {
            return Some(format!("its scores have {rows} rows for {queries} queries"));
        }
        if let Some(other) = branches.get(&site.index) {
            let same = order::same_queries(tokens, trace, site, &sites[*other]);
            if same {
                return Some("heads in separate branches are not supported".to_owned());
            }
        }
        if let Some(node) = chosen.get(&site.key.value) {
            let (place, op) = (graph.place(*node), graph.node(*node).op());
            return Some(format!(
                "content chooses how many and which tokens its keys stand for ({op} {place})"
            ));
        }
        order::disorder((graph, classes), tokens, trace, site)
    };
    let reasons = sites.iter().map(|site| (site.index, of(site)));
    reasons.filter_map(|(i, why)| Some((i, why?))).collect()
}
