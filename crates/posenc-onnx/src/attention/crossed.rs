//! Cross-attention where both stacks get the tokens of one input: a decoder that is given them one place later.

use posenc_ir::Graph;
use posenc_ir::eval::Trace;

use super::describe::one_stream;
use super::find::number;
use super::order::is_shifted;
use super::site::Site;
use crate::graph::dataflow::Classes;
use crate::graph::mixing::Tokens;

/// Takes attention for cross-attention where queries and keys come from different streams, in which the same places
/// hold different tokens. Says whether there is any.
pub(crate) fn mark_crossed(
    (graph, classes, trace): (&Graph, &Classes, &Trace),
    tokens: &Tokens,
    sites: &mut [Site],
) -> bool {
    let mut any = false;
    for site in sites.iter_mut() {
        let is_other = !site.cross
            && is_shifted(tokens, trace, site)
            && !one_stream((graph, classes, trace), site);
        site.cross |= is_other;
        any |= is_other;
    }
    if any {
        number(graph, sites);
    }
    any
}
