//! Reading masks off what the softmax sees when queries and keys are zero and every token counts.

use posenc_ir::{Graph, ScopeKind, ValueId};

use crate::attention::plane::Plane;
use crate::attention::site::{Mask, Site};
use crate::graph::dataflow::{Class, Classes};
use crate::graph::operators::bias_slots;

/// What is added to scores and is not above this hides a key: no bias of a few tokens is as large.
pub(crate) const HIDES: f64 = -1e3;

/// The mask of a site, given what its softmax sees where queries and keys are zero.
pub(crate) fn read(graph: &Graph, classes: &Classes, site: &Site, plane: Option<&Plane>) -> Mask {
    let mut mask = Mask {
        padding: padding(graph, classes, site),
        // What a fused operator hides by itself.
        causal: site.mask.causal,
        window: site.mask.window,
    };
    if let Some(plane) = plane.filter(|_| mask.causal != Some(true))
        && let Some(causal) = causal(plane)
    {
        let (.., queries, keys) = plane.bias.dim();
        let past = plane.past;
        // A branch for one token at a time has no mask, so that an open one does not show whether attention
        // is causal.
        let open = |i: usize, j: usize| !plane.is_hidden([0, 0, i, j]);
        let all =
            |f: &dyn Fn(usize, usize) -> bool| (0..queries).all(|i| (0..keys).all(|j| f(i, j)));
        let unmasked = site.past && all(&open);
        mask.causal = Some(causal).filter(|_| !(unmasked && in_branch(graph, site)));
        let shown = (1..keys).find(|w| {
            let inside = |i: usize, j: usize| (i + past).abs_diff(j) < *w;
            all(&|i, j| j > i + past && causal || open(i, j) == inside(i, j))
        });
        mask.window = [mask.window, shown].into_iter().flatten().min();
    }
    if let Ok(Some(causal)) = graph.node(site.node).int("is_causal")
        && causal != 0
    {
        mask.causal = Some(true);
    }
    mask
}

/// Whether later keys are hidden; `None` where heads hide different keys, and have no mask in common.
pub(crate) fn causal(plane: &Plane) -> Option<bool> {
    let (.., queries, keys) = plane.bias.dim();
    let past = plane.past;
    let hidden = |i: usize, j: usize| plane.is_hidden([0, 0, i, j]);
    let all = |f: &dyn Fn(usize, usize) -> bool| (0..queries).all(|i| (0..keys).all(|j| f(i, j)));
    let causal = queries > 1
        && all(&|i, j| j <= i + past || hidden(i, j))
        && (0..queries).all(|i| !hidden(i, (i + past).min(keys - 1)));
    plane.hides_alike().then_some(causal)
}

/// Whether a site is in a branch of an `If`, as of a decoder with earlier keys and one without.
fn in_branch(graph: &Graph, site: &Site) -> bool {
    matches!(graph.scope(site.scope).kind(), ScopeKind::Body(id, _) if graph.node(*id).is("If"))
}

/// Whether the attention mask reaches the scores.
fn padding(graph: &Graph, classes: &Classes, site: &Site) -> bool {
    let mut met = meets_scores(graph, classes, site).into_iter();
    met.any(|value| classes.of_value(value).has(Class::PADDING))
}

/// What meets the scores of a site and is no content: between the product and the softmax, or at the inputs of
/// an operator that hide or add.
pub(crate) fn meets_scores(graph: &Graph, classes: &Classes, site: &Site) -> Vec<ValueId> {
    let is_content = |value: &ValueId| classes.of_value(*value).has(Class::CONTENT);
    let (mut stack, mut met) = match site.scores {
        Some(scores) => (vec![scores], vec![]),
        None => {
            let node = graph.node(site.node);
            let slots = bias_slots(node).iter().filter_map(|slot| node.input(*slot));
            slots.partition(is_content)
        }
    };
    let mut seen = rustc_hash::FxHashSet::default();
    while let Some(value) = stack.pop() {
        if Some(value) == site.product || !seen.insert(value) {
            continue;
        }
        let Some((id, _)) = graph.producer(value) else {
            continue;
        };
        let inputs = graph.node(id).inputs().iter().flatten();
        let (content, others): (Vec<ValueId>, Vec<ValueId>) = inputs.copied().partition(is_content);
        stack.extend(content);
        met.extend(others);
    }
    met
}
