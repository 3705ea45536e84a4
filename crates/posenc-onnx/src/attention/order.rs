//! Whether an index along the queries or keys of a site stands for a position, and one along
//! their features for a feature of the projection.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, ValueId};

use super::reads::weighted;
use super::site::{Operand, Site};
use crate::graph::dataflow::Classes;
use crate::graph::mixing::{Along, Tokens};
use crate::graph::operators::{is_copy, is_layout};

/// Why an index along the queries or keys of a site is no position; `None` where it is one.
pub(crate) fn disorder(
    (graph, classes): (&Graph, &Classes),
    tokens: &Tokens,
    trace: &Trace,
    site: &Site,
) -> Option<String> {
    let queries = along(tokens, trace, &site.query);
    let keys = along(tokens, trace, &site.key);
    // The sequences of a batch that was fixed to one follow each other in the trial run.
    let repeated = |along: &Option<Along>| along.as_ref().is_some_and(Along::is_repeated);
    if repeated(&queries) && repeated(&keys) {
        return None;
    }
    let sides = [("queries", &queries), ("keys", &keys)];
    let turned = sides.into_iter().find_map(|(what, along)| {
        let along = along.as_ref()?;
        (!along.is_rising()).then(|| format!("its {what} are not in the order of the tokens"))
    });
    let turned = turned.or_else(|| {
        // One key has no order.
        let several = keys
            .as_ref()
            .is_some_and(|keys| keys.len() > 1 && !keys.is_of_tokens());
        let elsewhere = several && tokens.has_axis(site.key.value);
        elsewhere.then(|| "its keys do not stand for tokens".to_owned())
    });
    let turned = turned.or_else(|| {
        let (queries, keys) = (queries.as_ref()?, keys.as_ref()?);
        let shifted = !site.cross && queries.contradicts(keys);
        shifted.then(|| "its keys are not in the order of its queries".to_owned())
    });
    let turned = turned.or_else(|| {
        let values = weighted(graph, classes, site).into_iter();
        let mut values = values.filter_map(|value| is_other(tokens, trace, value, &keys));
        let other = values.any(|is_other| is_other);
        other.then(|| "its values are not in the order of its keys".to_owned())
    });
    // Blocks of a picture, or of a text, attend to themselves.
    let blocks = matches!((&queries, &keys), (Some(q), Some(k)) if q.is_folded() != k.is_folded());
    turned.or_else(|| {
        blocks.then(|| "one of its queries and its keys is in blocks, and the other is not".into())
    })
}

/// Whether the keys of a site are known to stand for different tokens.
pub(crate) fn is_over_tokens(tokens: &Tokens, trace: &Trace, site: &Site) -> bool {
    along(tokens, trace, &site.key).is_some_and(|keys| keys.is_of_tokens())
}

/// Whether some query and the key in its place are of different tokens.
pub(crate) fn is_shifted(tokens: &Tokens, trace: &Trace, site: &Site) -> bool {
    let sides = [&site.query, &site.key].map(|operand| along(tokens, trace, operand));
    matches!(&sides, [Some(queries), Some(keys)] if queries.contradicts(keys))
}

/// Whether values are of other tokens than the keys in their places; `None` where that is not known.
fn is_other(tokens: &Tokens, trace: &Trace, value: ValueId, keys: &Option<Along>) -> Option<bool> {
    let keys = keys.as_ref()?;
    let rank = trace.get(value).dims.as_ref()?.len();
    // Before a product, the tokens of values are before their features.
    let axis = rank.checked_sub(2)?;
    let values = tokens.along(value, axis, length(trace, value, axis)?)?;
    let same_length = values.len() == keys.len();
    let differs = keys.is_exact() && values.is_of_tokens() && values != *keys;
    Some(same_length && (differs || values.contradicts(keys)))
}

/// Whether the queries of a site are known to be others than the last of the tokens of its keys.
pub(crate) fn is_part(tokens: &Tokens, trace: &Trace, site: &Site) -> bool {
    let of = |operand| along(tokens, trace, operand).filter(Along::is_exact);
    let (Some(queries), Some(keys)) = (of(&site.query), of(&site.key)) else {
        return false;
    };
    !site.cross && !keys.ends_with(&queries)
}

/// Whether the queries of two sites are not known to be of different tokens.
pub(crate) fn same_queries(tokens: &Tokens, trace: &Trace, a: &Site, b: &Site) -> bool {
    along(tokens, trace, &a.query) == along(tokens, trace, &b.query)
}

fn along(tokens: &Tokens, trace: &Trace, operand: &Operand) -> Option<Along> {
    let Operand { value, lane } = *operand;
    let len = length(trace, value, lane.sequence)?;
    tokens.along(value, lane.sequence, len)
}

fn length(trace: &Trace, value: ValueId, axis: usize) -> Option<usize> {
    trace.get(value).dims.as_ref()?.get(axis).copied()
}

/// Whether the features of queries or keys are read backwards just before their product.
pub(crate) fn reads_backwards(graph: &Graph, trace: &Trace, operand: &Operand) -> bool {
    let mut at = operand.value;
    while let Some((id, _)) = graph.producer(at) {
        let node = graph.node(id);
        let moves = is_copy(node.op()) || is_layout(node.op()) || node.op() == "Slice";
        let steps = node.input(4).filter(|_| node.is("Slice"));
        let steps = steps.and_then(|v| trace.get(v).to_i64());
        let backwards = steps.is_some_and(|steps| steps.iter().any(|n| *n < 0));
        match node.input(0) {
            _ if backwards => return true,
            Some(before) if moves && node.domain().is_empty() => at = before,
            _ => return false,
        }
    }
    false
}
