//! Values on both sides of the border of a body: an order goes on with them.

use posenc_ir::eval::Trace;
use posenc_ir::{Def, Graph, NodeId, Use, ValueId};
use rustc_hash::FxHashMap;

use super::order::Order;
use crate::graph::bodies::{self, holder, scan_axis, stacked_axis, states};

/// The borders of the bodies of a graph.
pub(crate) struct Borders<'a> {
    graph: &'a Graph,
    trace: &'a Trace,
    /// The values that leave bodies, each with the node of the body and its place among the outputs.
    results: FxHashMap<ValueId, Vec<(NodeId, usize)>>,
}

/// A value that holds another one on the other side of a border.
#[derive(Clone, Debug)]
pub(super) struct Beyond {
    pub(super) value: ValueId,
    /// Where the node of the body reads it.
    pub(super) at: Option<Use>,
    pub(super) order: Order,
    pub(super) node: NodeId,
}

/// How a value is held on the other side.
#[derive(Clone, Copy, Debug)]
enum Held {
    /// The same, in every trip.
    Same,
    /// One of the slices along an axis.
    Slice(usize),
}

impl<'a> Borders<'a> {
    pub(crate) fn new(graph: &'a Graph, trace: &'a Trace) -> Self {
        let mut results: FxHashMap<ValueId, Vec<(NodeId, usize)>> = FxHashMap::default();
        for (id, node) in graph.nodes() {
            for (_, body) in node.bodies() {
                for (at, value) in graph.scope(body).outputs().iter().enumerate() {
                    results.entry(*value).or_default().push((id, at));
                }
            }
        }
        Self {
            graph,
            trace,
            results,
        }
    }

    /// The values that leave bodies.
    pub(super) fn leaving(&self) -> impl Iterator<Item = ValueId> {
        self.results.keys().copied()
    }

    /// The values on the other sides of the borders that a value is at; none where they are not followed.
    pub(crate) fn across(&self, value: ValueId) -> Vec<ValueId> {
        let beyond = self.beyond(value, &Order::unmoved()).unwrap_or_default();
        beyond.into_iter().map(|other| other.value).collect()
    }

    /// The same of a value with an order, each with its own.
    ///
    /// # Errors
    /// With the node where the order moves slices among each other, or the value is none that has features.
    pub(super) fn beyond(&self, value: ValueId, order: &Order) -> Result<Vec<Beyond>, NodeId> {
        let graph = self.graph;
        let mut all = vec![];
        let of = |id: NodeId| Holder {
            graph,
            trace: self.trace,
            id,
        };
        let own = graph.value(value);
        if let (Def::Input(slot), Some(id)) = (own.def(), holder(graph, own.scope())) {
            of(id).entered(slot as usize, order, &mut all)?;
        }
        for (id, at) in self.results.get(&value).into_iter().flatten() {
            of(*id).leaves(*at, order, &mut all)?;
        }
        if let Some((id, output)) = graph.producer(value) {
            of(id).left(output, order, &mut all)?;
        }
        for at in graph.uses(value) {
            of(at.node).enters(at.slot(), order, &mut all)?;
        }
        Ok(all)
    }
}

/// A node with bodies: which of its values are the same, and which are slices of others.
struct Holder<'a> {
    graph: &'a Graph,
    trace: &'a Trace,
    id: NodeId,
}

impl Holder<'_> {
    fn op(&self) -> &str {
        let node = self.graph.node(self.id);
        match node.domain().is_empty() && node.bodies().next().is_some() {
            true => node.op(),
            false => "",
        }
    }

    /// A value in a body, which enters as input `slot`.
    fn entered(&self, slot: usize, order: &Order, all: &mut Vec<Beyond>) -> Result<(), NodeId> {
        match self.op() {
            "Loop" if slot < 2 => Err(self.id),
            "Loop" => self.state(slot - 2, order, all),
            "Scan" if slot < states(self.graph.node(self.id)) => self.state(slot, order, all),
            "Scan" => {
                let outer = self.graph.node(self.id).input(slot).ok_or(self.id)?;
                let axis = self.sliced(slot, outer)?;
                let order = order.moved(|own| own + usize::from(own >= axis));
                all.push(self.at(outer, Some(Use::new(self.id, slot)), order));
                Ok(())
            }
            _ => Err(self.id),
        }
    }

    /// A value outside, which the node reads as input `slot`.
    fn enters(&self, slot: usize, order: &Order, all: &mut Vec<Beyond>) -> Result<(), NodeId> {
        match self.op() {
            "" => Ok(()),
            "Loop" if slot >= 2 => self.state(slot - 2, order, all),
            "Scan" if slot < states(self.graph.node(self.id)) => self.state(slot, order, all),
            "Scan" => {
                let outer = self.graph.node(self.id).input(slot).ok_or(self.id)?;
                let axis = self.sliced(slot, outer)?;
                let order = self.of_slice(order, axis)?;
                for inner in self.inputs(slot) {
                    all.push(self.at(inner, None, order.clone()));
                }
                Ok(())
            }
            _ => Err(self.id),
        }
    }

    /// A value in a body, which leaves it as output `at`.
    fn leaves(&self, at: usize, order: &Order, all: &mut Vec<Beyond>) -> Result<(), NodeId> {
        let output = match self.op() {
            "Loop" => at.checked_sub(1).ok_or(self.id)?,
            _ => at,
        };
        match self.held(output)? {
            Held::Same => self.state(output, order, all),
            Held::Slice(axis) => {
                let order = order.moved(|own| own + usize::from(own >= axis));
                let outer = self.graph.node(self.id).output(output);
                all.extend(outer.map(|outer| self.at(outer, None, order)));
                Ok(())
            }
        }
    }

    /// A value outside, which is output `output` of the node.
    fn left(&self, output: usize, order: &Order, all: &mut Vec<Beyond>) -> Result<(), NodeId> {
        if self.op().is_empty() {
            return Ok(());
        }
        match self.held(output)? {
            Held::Same => self.state(output, order, all),
            Held::Slice(axis) => {
                let order = self.of_slice(order, axis)?;
                for inner in self.outputs(output) {
                    all.push(self.at(inner, None, order.clone()));
                }
                Ok(())
            }
        }
    }

    /// How an output holds what leaves the bodies.
    fn held(&self, output: usize) -> Result<Held, NodeId> {
        let node = self.graph.node(self.id);
        let stacked = |states: usize| {
            let index = output.checked_sub(states)?;
            let rank = self.rank(node.output(output)?)?;
            Some(match node.op() {
                "Loop" => 0,
                _ => stacked_axis(node, index, rank),
            })
        };
        let states = match self.op() {
            "If" => return Ok(Held::Same),
            "Loop" => node.inputs().len().saturating_sub(2),
            "Scan" => states(node),
            _ => return Err(self.id),
        };
        match output < states {
            true => Ok(Held::Same),
            false => stacked(states).map(Held::Slice).ok_or(self.id),
        }
    }

    /// The axis of the slices of an input of a `Scan`.
    fn sliced(&self, slot: usize, outer: ValueId) -> Result<usize, NodeId> {
        let node = self.graph.node(self.id);
        let rank = self.rank(outer).ok_or(self.id)?;
        Ok(scan_axis(node, slot - states(node), rank))
    }

    /// The order of each slice.
    fn of_slice(&self, order: &Order, axis: usize) -> Result<Order, NodeId> {
        if order.has(axis) {
            return Err(self.id);
        }
        Ok(order.moved(|own| own - usize::from(own > axis)))
    }

    /// What the trips carry, or what a condition chooses: the same as it enters and leaves bodies and the node.
    fn state(&self, index: usize, order: &Order, all: &mut Vec<Beyond>) -> Result<(), NodeId> {
        let node = self.graph.node(self.id);
        let first = match self.op() {
            "Loop" => Some(2),
            "Scan" => Some(0),
            _ => None,
        };
        if let Some(slot) = first.map(|first| first + index) {
            let outer = node.input(slot).ok_or(self.id)?;
            all.push(self.at(outer, Some(Use::new(self.id, slot)), order.clone()));
            let entered = self.inputs(slot).into_iter();
            all.extend(entered.map(|inner| self.at(inner, None, order.clone())));
        }
        let left = self.outputs(index).into_iter().chain(node.output(index));
        all.extend(left.map(|value| self.at(value, None, order.clone())));
        Ok(())
    }

    fn rank(&self, value: ValueId) -> Option<usize> {
        Some(self.trace.get(value).dims.as_ref()?.len())
    }

    /// What an input of the node is in its bodies.
    fn inputs(&self, slot: usize) -> Vec<ValueId> {
        bodies::inside(self.graph, Use::new(self.id, slot))
    }

    /// What an output of the node is in its bodies.
    fn outputs(&self, output: usize) -> Vec<ValueId> {
        bodies::results(self.graph, self.id, output)
    }

    fn at(&self, value: ValueId, at: Option<Use>, order: Order) -> Beyond {
        Beyond {
            value,
            at,
            order,
            node: self.id,
        }
    }
}
