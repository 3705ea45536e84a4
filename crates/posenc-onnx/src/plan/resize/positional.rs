//! What enters the encodings of a model and the scores of its sites, with everything that is computed from.

use posenc_ir::{Use, ValueId};
use rustc_hash::FxHashSet;

use crate::attention::Site;
use crate::detect::context::Context;
use crate::graph::operators::bias_slots;
use crate::graph::region::above;

/// What enters the encodings of a model, and everything that is computed from.
pub(super) fn positional(context: &Context<'_>) -> FxHashSet<ValueId> {
    let found = context.found;
    let findings = found.findings.iter().flat_map(|finding| &finding.entries);
    let rotations = found
        .rotary
        .iter()
        .flat_map(|site| [&site.query, &site.key]);
    let rotations = rotations.flat_map(|operand| &operand.region.entries);
    let read = |at: &Use| context.graph().node(at.node).input(at.slot());
    // Of layers with equal biases, the entry of the first is named.
    let biases = found.findings.iter().filter(|f| !f.encoding.is_absolute());
    let biased: FxHashSet<usize> = biases.flat_map(|f| f.sites.iter().copied()).collect();
    let sites = found.attention.iter();
    let sites = sites.filter(|site| biased.contains(&site.index));
    let entering = findings.chain(rotations).filter_map(read);
    origins(context, entering.chain(scored(context, sites)).collect())
}

/// What enters the scores of sites and is no content.
pub(super) fn scored<'a>(
    context: &Context<'_>,
    sites: impl Iterator<Item = &'a Site>,
) -> Vec<ValueId> {
    let graph = context.graph();
    let mut entering = vec![];
    for site in sites {
        let fused = bias_slots(graph.node(site.node)).iter();
        entering.extend(fused.filter_map(|slot| graph.node(site.node).input(*slot)));
        let (Some(product), Some(scores)) = (site.product, site.scores) else {
            continue;
        };
        let mut seen = FxHashSet::from_iter([product]);
        let mut stack = vec![scores];
        while let Some(value) = stack.pop() {
            let Some((id, _)) = graph.producer(value).filter(|_| seen.insert(value)) else {
                continue;
            };
            for input in graph.node(id).inputs().iter().flatten() {
                match context.is_content(*input) {
                    true => stack.push(*input),
                    false => entering.push(*input),
                }
            }
        }
    }
    entering
}

/// Values, and everything that they are computed from but content.
pub(super) fn origins(context: &Context<'_>, values: Vec<ValueId>) -> FxHashSet<ValueId> {
    let all = above(context.graph(), values, |value| !context.is_content(value));
    all.into_iter().collect()
}
