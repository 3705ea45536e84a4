//! Values in which tokens of equal content differ for another reason than position.

use posenc_ir::{Graph, NodeId, ValueId};
use rustc_hash::FxHashSet;

use crate::detect::Found;
use crate::graph::mixing::Mixing;
use crate::graph::operators::is_random;
use crate::graph::region::reads;

/// What is computed from borders that are filled up, from recurrences, or from random numbers; nodes that
/// are `even` are none of these any more.
pub(super) fn uneven(graph: &Graph, found: &Found, even: &FxHashSet<NodeId>) -> FxHashSet<ValueId> {
    let begins = Begins::of(graph, found);
    after(graph, |id| !even.contains(&id) && begins.at(id))
}

/// What is computed from nodes, those included.
pub(super) fn after(graph: &Graph, begins: impl Fn(NodeId) -> bool) -> FxHashSet<ValueId> {
    let mut after = FxHashSet::default();
    for id in graph.order(graph.main()).unwrap_or_default() {
        if begins(id) || reads(graph, id).iter().any(|v| after.contains(v)) {
            after.extend(graph.node(id).outputs().iter().flatten().copied());
        }
    }
    after
}

/// Where tokens of equal content begin to differ.
pub(super) struct Begins<'a> {
    graph: &'a Graph,
    found: &'a Found,
    recurrent: FxHashSet<NodeId>,
    /// What mixes the tokens that it reads, in the main graph.
    mixing: FxHashSet<NodeId>,
}

impl<'a> Begins<'a> {
    pub(super) fn of(graph: &'a Graph, found: &'a Found) -> Self {
        let mixers = found.mixers.iter();
        let recurrent = mixers.filter(|mixer| mixer.mixing == Mixing::Recurrence);
        Self {
            graph,
            found,
            recurrent: recurrent.map(|mixer| mixer.node).collect(),
            mixing: found.spread.iter().map(|mixer| mixer.node).collect(),
        }
    }

    /// Whether a node of the main graph makes tokens of equal content differ.
    pub(super) fn at(&self, id: NodeId) -> bool {
        self.is_one(id, false)
    }

    fn is_one(&self, id: NodeId, is_in_body: bool) -> bool {
        let (graph, found) = (self.graph, self.found);
        let node = graph.node(id);
        if self.recurrent.contains(&id) || is_random(node) {
            return true;
        }
        let mut outputs = node.outputs().iter().flatten();
        if !outputs.any(|out| found.is_content(*out)) {
            return false;
        }
        match node.op() {
            // Whichever branch content chooses, equal tokens are computed alike.
            _ if node.bodies().next().is_some() => {
                let nodes = node.bodies();
                let mut nodes = nodes.flat_map(|(_, body)| graph.scope(body).nodes());
                nodes.any(|id| self.is_one(*id, true))
            }
            "Pad" => {
                node.input(0).is_some_and(|v| found.is_content(v)) && found.filled.contains(&id)
            }
            "CumSum" | "LSTM" | "DynamicQuantizeLSTM" | "GRU" | "RNN" => true,
            // The padding of a maximum is no number.
            "MaxPool" => false,
            // What reads the same at every place counts places where its ends are filled up.
            _ if !is_in_body && !self.mixing.contains(&id) => false,
            _ => {
                let pads = node.ints("pads").ok().flatten().unwrap_or_default();
                let auto = node.string("auto_pad").ok().flatten();
                pads.iter().any(|n| *n != 0) || auto.is_some_and(|auto| auto.starts_with("SAME"))
            }
        }
    }
}
