//! Convolutions over tokens that are not read as encodings, and may encode position all the same.

use posenc_ir::{Node, NodeId, ValueId};
use rustc_hash::FxHashSet;

use super::downstream::Downstream;
use super::operators::{FEW, groups, is_convolution, kernel, passes, sums, weight};
use crate::detect::found::Refused;
use crate::detect::results::Results;
use crate::detect::runs::Runs;
use crate::graph::mixing::Mixing;
use crate::graph::operators::is_projection;

/// Says which convolutions over tokens were not `read`: those of queries or keys alone, which are part of
/// their projection, and grouped ones that are added to content which is not seen to be their input.
pub(super) fn find(
    runs: &Runs<'_>,
    results: &mut Results,
    read: &FxHashSet<NodeId>,
    downstream: &mut Downstream,
) {
    let graph = runs.model.graph();
    let over_tokens = runs.found.mixers.iter();
    let over_tokens = over_tokens.filter(|m| m.mixing == Mixing::Convolution);
    let operands = operands(runs);
    for id in over_tokens.map(|m| m.node) {
        let node = graph.node(id);
        if !is_convolution(node) || read.contains(&id) {
            continue;
        }
        let sites = downstream.sites(graph, id);
        let Some(site) = sites.first().copied() else {
            continue;
        };
        let behind = |through: &dyn Fn(&Node) -> bool| Behind::of(runs, id, &operands, through);
        let projects = |node: &Node| {
            is_projection(node) && runs.found.classes.content(node).count() == 1 || node.is("Split")
        };
        let all = behind(&|node| passes(node) || projects(node));
        if overlaps(runs, node) && all.operands && !all.sums {
            let why = "no convolutional encoding: it is not added to its input, but projects queries or keys from \
                       neighboring tokens";
            results.no_encodings.push(Refused {
                site,
                node: id,
                why: why.to_owned(),
            });
        } else if groups(node) > 1 && behind(&passes).sums {
            results.not_evaluated.push(format!(
                "{}: this convolution may encode position: what it is added to was not read",
                graph.place(id)
            ));
        }
    }
}

/// Queries and keys of all attention, also before they are rotated.
fn operands(runs: &Runs<'_>) -> FxHashSet<ValueId> {
    let sites = runs.found.attention.iter();
    let own = sites.flat_map(|site| [site.query.value, site.key.value]);
    let rotary = runs.found.rotary.iter();
    let before = rotary.flat_map(|site| [&site.query, &site.key].map(|side| side.region.input));
    own.chain(before).collect()
}

/// Whether windows of a convolution share tokens: others make patches.
fn overlaps(runs: &Runs<'_>, node: &Node) -> bool {
    let Some(weight) = weight(runs, node) else {
        return false;
    };
    let strides = node.ints("strides").ok().flatten().unwrap_or_default();
    let mut taps = kernel(node, weight).iter().enumerate();
    taps.any(|(axis, taps)| {
        let stride = strides.get(axis).map_or(1, |n| *n);
        i64::try_from(*taps).is_ok_and(|taps| taps > stride)
    })
}

/// What is met behind a convolution.
#[derive(Clone, Copy, Debug, Default)]
struct Behind {
    /// Queries or keys.
    operands: bool,
    /// A sum with other content, as that of the residual stream.
    sums: bool,
}

impl Behind {
    /// What is met behind nodes that pass on what a convolution gives.
    fn of(
        runs: &Runs<'_>,
        id: NodeId,
        operands: &FxHashSet<ValueId>,
        passes: impl Fn(&Node) -> bool,
    ) -> Self {
        let graph = runs.model.graph();
        let mut behind = Self::default();
        let mut stack: Vec<ValueId> = graph.node(id).outputs().iter().flatten().copied().collect();
        let mut seen = FxHashSet::default();
        while let Some(value) = stack.pop() {
            if operands.contains(&value) {
                behind.operands = true;
                continue;
            }
            for at in graph.uses(value) {
                let node = graph.node(at.node);
                if sums(node) && runs.found.classes.content(node).count() > 1 {
                    behind.sums = true;
                } else if passes(node) && seen.len() < FEW && seen.insert(at.node) {
                    stack.extend(node.outputs().iter().flatten());
                }
            }
        }
        behind
    }
}
