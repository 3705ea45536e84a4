//! Graphs that take one token at a time: where positions enter is told by what differs from token to token.

use posenc_ir::Graph;

use crate::attention::{Operand, Site};
use crate::detect::found::Found;

/// One sentence for the attention in which nothing was found for this reason.
pub(crate) fn unread(graph: &Graph, found: &Found) -> Option<String> {
    let count = |operand: &Operand| {
        let dims = found.trace.get(operand.value).dims.as_deref()?;
        dims.get(operand.lane.sequence).copied()
    };
    let steps = found.ports.has_past() || found.lengths.sequence == 1;
    let own = found.self_attending();
    let is_alone = |site: &Site| {
        // Keys of a cache that was not read as one are those of other tokens.
        let attends_itself = !site.cross || !own.contains(&site.place.stack);
        let has_more_keys = site.past || steps && count(&site.key) != Some(1);
        attends_itself && has_more_keys && count(&site.query) == Some(1)
    };
    let mut sites = found.attention.iter();
    let site = sites.find(|site| is_alone(site) && !found.has_positions(site.index))?;
    Some(format!(
        "{}: the graph takes one token at a time, and which positions its queries have cannot be told from one; \
         export the model for several tokens, or any number",
        graph.place(site.node)
    ))
}
