//! Checks the order of sequences, windows and heads. Numbers for each head are aligned with the last axes
//! apart from queries and keys, so the axes of sequences and windows have to be before those of heads.

use posenc_ir::ValueId;
use rustc_hash::FxHashSet;

use super::path::ScorePath;
use crate::attention::{Site, heads};
use crate::detect::context::Context;
use crate::edit::insert::axes::batch_axis;
use crate::error::RewriteError;
use crate::graph::lane::{Lane, back};
use crate::graph::product::Letters;

/// Checks the scores of a site, as far as the axis of sequences is known.
///
/// # Errors
/// If heads are before sequences.
pub(crate) fn check(
    context: &Context<'_>,
    site: &Site,
    path: &ScorePath,
) -> Result<(), RewriteError> {
    let Some(product) = site.product else {
        return Ok(());
    };
    let batch = batch_axis(context, site.query.value, &site.query.lane);
    let batch = batch.and_then(|batch| in_product(context, site, batch));
    let (graph, found) = (context.graph(), context.found);
    let heads = heads::split((graph, &found.classes, &found.trace), &site.query);
    let heads = heads.unwrap_or_default().into_iter();
    let heads: Vec<Option<usize>> = heads.map(|axis| in_product(context, site, axis)).collect();
    for stage in &path.stages {
        let dims = context.dims(stage.value).unwrap_or_default();
        let origin = |axis: &usize| before(context, &path.main, product, stage.value, *axis);
        let lead: Vec<usize> = (0..dims.len())
            .filter(|a| !stage.plane.contains(a))
            .collect();
        let found = lead.iter().find(|axis| origin(axis) == batch);
        let found = found.filter(|_| batch.is_some());
        if found.is_some_and(|batch| !is_first(site, dims, stage.plane, *batch)) {
            return Err(refused(context, site));
        }
        let is_head = |axis: &usize| origin(axis).is_some_and(|own| heads.contains(&Some(own)));
        let mut long = lead.iter().filter(|axis| dims[**axis] > 1);
        if long.any(&is_head) && long.any(|axis| !is_head(axis)) {
            let why = "an axis of windows behind the axis of heads is not supported yet";
            return Err(context.refuse(site.node, why));
        }
    }
    Ok(())
}

/// Checks the queries of a site as they enter the product.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_queries(context: &Context<'_>, site: &Site) -> Result<(), RewriteError> {
    let lane = site.query.lane;
    let dims = context.dims(site.query.value).unwrap_or_default();
    let plane = [lane.sequence, lane.feature.unwrap_or(lane.sequence)];
    match batch_axis(context, site.query.value, &site.query.lane) {
        Some(batch) if !is_first(site, dims, plane, batch) => Err(refused(context, site)),
        _ => Ok(()),
    }
}

fn refused(context: &Context<'_>, site: &Site) -> RewriteError {
    let why = "an axis of heads before the axis of sequences is not supported yet";
    context.refuse(site.node, why)
}

/// Whether all heads are after the axis `batch`.
fn is_first(site: &Site, dims: &[usize], plane: [usize; 2], batch: usize) -> bool {
    let after = (batch + 1..dims.len()).filter(|a| !plane.contains(a));
    let after: usize = after.map(|a| dims[a]).product();
    site.heads.is_none_or(|heads| after.is_multiple_of(heads))
}

/// The axis of the product of queries and keys that is an axis of the queries.
fn in_product(context: &Context<'_>, site: &Site, axis: usize) -> Option<usize> {
    let (graph, trace) = (context.graph(), &context.found.trace);
    let (id, _) = graph.producer(site.product?)?;
    let letters = Letters::of(graph, trace, id)?;
    let slot = usize::from(graph.node(id).input(0) != Some(site.query.value));
    let letter = letters.operands.get(slot)?.get(axis)?;
    letters.result.iter().position(|c| c == letter)
}

/// The axis of the product that becomes an axis of scores after it.
fn before(
    context: &Context<'_>,
    main: &FxHashSet<ValueId>,
    product: ValueId,
    mut value: ValueId,
    mut axis: usize,
) -> Option<usize> {
    let graph = context.graph();
    while value != product {
        let (id, output) = graph.producer(value)?;
        let inputs = graph.node(id).inputs().iter();
        let slot = inputs
            .clone()
            .position(|v| v.is_some_and(|v| main.contains(&v)))?;
        let lane = Lane::of_sequence(axis);
        axis = back(graph, &context.found.trace, id, output, slot, lane)?.sequence;
        value = graph.node(id).input(slot)?;
    }
    Some(axis)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{inserts, kinds, model, scaled, softmax, swapped};
    use crate::graph::sketch::{HIDDEN, Sketch};
    use posenc_encodings::kind::Kind;

    /// The orders of sequences, heads, queries and keys in the product and before the softmax.
    #[derive(Clone, Copy)]
    struct Order {
        product: [i64; 2],
        scores: [i64; 2],
    }

    /// Sequences first, then heads.
    const PLAIN: [i64; 2] = [0, 1];
    /// Heads first, then sequences.
    const SWAPPED: [i64; 2] = [1, 0];

    fn layer(s: &mut Sketch, x: &str, heads: usize, order: Order) -> String {
        let size = (HIDDEN / heads) as i64;
        // Swapping the first two axes is its own inverse.
        let ordered = |s: &mut Sketch, y: &str, lead: [i64; 2]| match lead {
            PLAIN => y.to_owned(),
            _ => s.transpose(y, &[1, 0, 2, 3]),
        };
        let [q, k, v] = [0; 3].map(|_| {
            let w = s.weights(&[HIDDEN, HIDDEN]);
            let y = s.op("MatMul", &[x, &w]);
            let y = s.reshape(&y, &[0, 0, heads as i64, size]);
            s.transpose(&y, &[0, 2, 1, 3])
        });
        let [q, k] = [q, k].map(|y| ordered(s, &y, order.product));
        let k = s.transpose(&k, &[0, 1, 3, 2]);
        let scores = s.op("MatMul", &[&q, &k]);
        let mut scores = scaled(s, &scores);
        if order.product != order.scores {
            scores = s.transpose(&scores, &[1, 0, 2, 3]);
        }
        let weights = softmax(s, &scores, -1);
        let weights = ordered(s, &weights, order.scores);
        let y = s.op("MatMul", &[&weights, &v]);
        let y = s.merged(&y);
        s.op("Add", &[x, &y])
    }

    #[test]
    fn heads_before_sequences_are_refused() {
        // As many heads as sequences, more and fewer, and numbers that divide each other.
        for heads in [2, 3, 4, 6] {
            for (product, scores) in [(SWAPPED, SWAPPED), (PLAIN, SWAPPED), (SWAPPED, PLAIN)] {
                let order = Order { product, scores };
                let model = model(|s, x| layer(s, x, heads, order));
                for kind in kinds() {
                    // Vectors that all heads share do not depend on the order.
                    if kind == Kind::Shaw {
                        continue;
                    }
                    let why = swapped(&model, kind).unwrap_err();
                    let found = why.contains("before the axis of sequences");
                    assert!(found, "{heads} {product:?} {scores:?} to {kind}: {why}");
                }
            }
        }
    }

    #[test]
    fn heads_after_sequences_are_accepted() {
        for heads in [2, 4] {
            let order = Order {
                product: PLAIN,
                scores: PLAIN,
            };
            let model = model(|s, x| layer(s, x, heads, order));
            for kind in [Kind::RelativeBias, Kind::TransformerXl] {
                inserts("plain", &model, kind);
            }
        }
    }
}
