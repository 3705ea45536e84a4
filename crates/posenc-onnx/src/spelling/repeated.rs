//! Nodes that compute what another one does, and nodes that no output depends on.

use std::hash::{Hash, Hasher};

use posenc_ir::proto::AttributeProto;
use posenc_ir::{Graph, Node, NodeId, Tensor, ValueId};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use super::draft::Draft;
use super::runs::is_default;
use super::view::View;
use crate::graph::dataflow::live;
use crate::graph::operators::is_random;

/// Numbers of a constant that is compared with others.
const FEW: usize = 16;

/// The nodes of a round so far.
pub(super) struct Known<'a> {
    /// The first node of each form, by a hash of its operator and of what it reads. Of different nodes
    /// with one hash, the later are found at the numbers after it.
    first: FxHashMap<u64, NodeId>,
    /// Values without content, as lengths, that equal one before them. They stay.
    equal: FxHashMap<ValueId, ValueId>,
    /// Constants that equal one before them.
    constants: &'a FxHashMap<ValueId, ValueId>,
}

impl<'a> Known<'a> {
    pub(super) fn of(constants: &'a FxHashMap<ValueId, ValueId>) -> Self {
        Self {
            first: FxHashMap::default(),
            equal: FxHashMap::default(),
            constants,
        }
    }

    /// What a node reads, with the replacements of this round, and equal values as one; in one order
    /// where others compute the same.
    fn reads(&self, view: &View<'_>, draft: &Draft<'_>, node: &Node) -> Vec<Option<ValueId>> {
        let now = |v: ValueId| {
            let v = draft.now(view.origin(v));
            let equal = self.constants.get(&v).or_else(|| self.equal.get(&v));
            equal.copied().unwrap_or(v)
        };
        let mut reads: Vec<Option<ValueId>> = node.inputs().to_vec();
        if node.is("Where") && reads.len() == 3 {
            while let Some(opposite) = reads[0].and_then(|v| view.made_by(v, "Not")) {
                reads[0] = opposite.input(0);
                reads.swap(1, 2);
            }
        }
        let mut reads: Vec<Option<ValueId>> = reads.into_iter().map(|v| v.map(now)).collect();
        if node.domain().is_empty() && commutes(node.op()) {
            reads.sort_unstable();
        }
        reads
    }

    /// The first node that computes the same as this one; `None` where this is the first.
    fn first(&mut self, view: &View<'_>, draft: &Draft<'_>, id: NodeId) -> Option<NodeId> {
        let graph = view.graph();
        let node = graph.node(id);
        let reads = self.reads(view, draft, node);
        let same = |other: NodeId| {
            let other = graph.node(other);
            let alike = |a: &AttributeProto| other.attribute(a.name()) == Some(a);
            other.op() == node.op()
                && other.domain() == node.domain()
                && other.scope() == node.scope()
                && other.outputs().len() == node.outputs().len()
                && other.attributes().len() == node.attributes().len()
                && node.attributes().iter().all(alike)
                && self.reads(view, draft, other) == reads
        };
        let mut hasher = FxHasher::default();
        node.op().hash(&mut hasher);
        reads.hash(&mut hasher);
        let mut hash = hasher.finish();
        while let Some(first) = self.first.get(&hash).copied() {
            if same(first) {
                return Some(first);
            }
            hash = hash.wrapping_add(1);
        }
        self.first.insert(hash, id);
        None
    }
}

/// Whether the order of an operator's inputs changes nothing.
fn commutes(op: &str) -> bool {
    matches!(
        op,
        "Add" | "Mul" | "Max" | "Min" | "And" | "Or" | "Xor" | "Equal"
    )
}

/// Small constants that equal one before them.
pub(super) fn equal_constants(graph: &Graph) -> FxHashMap<ValueId, ValueId> {
    let mut equal = FxHashMap::default();
    let mut first: FxHashMap<u64, (ValueId, Tensor)> = FxHashMap::default();
    for value in graph.values() {
        let few = graph.stored(value).and_then(|stored| stored.elements());
        let is_plain = few.is_some_and(|n| n <= FEW)
            && graph.value(value).scope() == graph.main()
            && !is_default(graph, value);
        if !is_plain {
            continue;
        }
        let Some(tensor) = graph.constant(value) else {
            continue;
        };
        let mut hasher = FxHasher::default();
        (tensor.dtype().code(), tensor.dims(), &tensor.bytes()[..]).hash(&mut hasher);
        match first.get(&hasher.finish()) {
            Some((before, same)) if is_same(same, &tensor) => {
                equal.insert(value, *before);
            }
            Some(_) => {}
            None => {
                first.insert(hasher.finish(), (value, tensor));
            }
        }
    }
    equal
}

fn is_same(a: &Tensor, b: &Tensor) -> bool {
    a.dtype() == b.dtype() && a.dims() == b.dims() && a.bytes() == b.bytes()
}

/// Replaces a node that computes from content what one before it does: what is done to the first
/// would not be done to it.
pub(super) fn again(
    view: &View<'_>,
    draft: &mut Draft<'_>,
    id: NodeId,
    known: &mut Known<'_>,
) -> Option<()> {
    let graph = view.graph();
    let node = graph.node(id);
    // What reads nothing is a constant or varies.
    let varies = is_random(node) || node.op() == "Dropout" || node.inputs().is_empty();
    let plain = node.bodies().next().is_none() && graph.overload(id).is_empty();
    if varies || !plain {
        return None;
    }
    let first = known.first(view, draft, id)?;
    let pairs = node.outputs().iter().zip(graph.node(first).outputs());
    let pairs: Vec<(ValueId, ValueId)> = pairs
        .filter_map(|(old, new)| old.map(|old| Some((old, (*new)?))))
        .collect::<Option<_>>()?;
    if !node.output(0).is_some_and(|v| view.is_content(v)) {
        known.equal.extend(pairs);
        return None;
    }
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
    let is_dead = |id: &NodeId| !live[id.index()] && graph.node(*id).scope() == graph.main();
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
