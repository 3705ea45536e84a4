//! Graphs that take one token at a time: where positions enter is told by what differs from token to token.

use posenc_ir::Graph;

use crate::attention::Site;
use crate::detect::found::Found;

/// One sentence for the attention in which nothing was found for this reason.
pub(crate) fn unread(graph: &Graph, found: &Found) -> Option<String> {
    let is_alone = |site: &Site| {
        let dims = found.trace.get(site.query.value).dims.as_deref();
        let queries = dims.and_then(|dims| dims.get(site.query.lane.sequence));
        site.past && !site.cross && queries == Some(&1)
    };
    let mut sites = found.attention.iter();
    let site = sites.find(|site| is_alone(site) && !found.has_positions(site.index))?;
    Some(format!(
        "{}: the graph takes one token at a time, and which positions its queries have cannot be told from one; \
         export the model for several tokens, or any number",
        graph.place(site.node)
    ))
}
