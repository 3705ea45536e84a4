//! Nodes that compute what another one does, and nodes that no output depends on.

use posenc_ir::{NodeId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::view::{Draft, View};
use crate::graph::dataflow::live;
use crate::graph::operators::is_random;

/// The first node of each form, by what it reads.
pub(super) type Known = FxHashMap<(String, Vec<Option<ValueId>>), Vec<NodeId>>;

/// Replaces a node that computes from content what one before it does: what is done to the first
/// would not be done to it.
pub(super) fn again(
    view: &View<'_>,
    draft: &mut Draft<'_>,
    id: NodeId,
    known: &mut Known,
) -> Option<()> {
    let graph = view.graph();
    let node = graph.node(id);
    let varies = is_random(node) || node.op() == "Dropout";
    let plain = node.bodies().next().is_none() && graph.overload(id).is_empty();
    let content = node.output(0).is_some_and(|v| view.is_content(v));
    if varies || !plain || !content {
        return None;
    }
    let inputs: Vec<Option<ValueId>> = (node.inputs().iter())
        .map(|v| v.map(|v| draft.now(view.origin(v))))
        .collect();
    let same = |other: &&NodeId| {
        let other = graph.node(**other);
        let alike = |a: &posenc_ir::proto::AttributeProto| other.attribute(a.name()) == Some(a);
        other.domain() == node.domain()
            && other.scope() == node.scope()
            && other.outputs().len() == node.outputs().len()
            && other.attributes().len() == node.attributes().len()
            && node.attributes().iter().all(alike)
    };
    let key = (node.op().to_owned(), inputs);
    let alike = known.entry(key).or_default();
    let Some(first) = alike.iter().find(same).copied() else {
        alike.push(id);
        return None;
    };
    let pairs = node.outputs().iter().zip(graph.node(first).outputs());
    let pairs: Vec<(ValueId, ValueId)> = pairs
        .filter_map(|(old, new)| old.map(|old| Some((old, (*new)?))))
        .collect::<Option<_>>()?;
    // An output of the model keeps its name.
    if pairs.iter().any(|(old, _)| graph.value(*old).is_output()) {
        return None;
    }
    for (old, new) in pairs {
        draft.replace(old, new)?;
    }
    Some(())
}

/// Drops what is computed from content or positions for no output: rows of a table that another
/// encoding replaces would still be read there. What reads it for no output goes with it.
pub(super) fn unused(view: &View<'_>, draft: &mut Draft<'_>) {
    let graph = view.graph();
    let live = live(graph);
    let is_dead = |id: &NodeId| !live.contains(id) && graph.node(*id).scope() == graph.main();
    let main = graph
        .scope(graph.main())
        .nodes()
        .iter()
        .filter(|id| is_dead(id));
    let holds = |id: &&NodeId| {
        let mut outputs = graph.node(**id).outputs().iter().flatten();
        outputs.any(|v| view.is_content(*v) || view.is_position(*v))
    };
    let mut stack: Vec<NodeId> = main.filter(holds).copied().collect();
    let mut seen: FxHashSet<NodeId> = stack.iter().copied().collect();
    while let Some(id) = stack.pop() {
        for value in graph.node(id).outputs().iter().flatten() {
            draft.drop_unused(*value);
            let readers = graph.uses(*value).iter().map(|at| view.holder(at.node));
            stack.extend(readers.filter(|id| is_dead(id) && seen.insert(*id)));
        }
    }
}
