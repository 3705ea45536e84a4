//! Follows another order of features through a graph: from some values to all that have to get it with them, and
//! to the weights that give it to them.
//!
//! Queries and keys may have their features in any order, as long as it is the same: their product sums over
//! them. Weights, biases and norms in the new order put them there without a node more.

mod attention;
mod moves;
mod order;
mod products;
mod rules;
mod spread;

use std::collections::{BTreeMap, BTreeSet};

use posenc_ir::eval::Trace;
use posenc_ir::{Def, Graph, NodeId, Use, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::graph::region::above;
pub(crate) use order::Order;
use rules::View;
use spread::End;

/// The values whose elements are in another order.
#[derive(Debug, Default)]
pub(crate) struct Reordered {
    /// Computed values, inputs and outputs.
    pub(crate) values: FxHashMap<ValueId, Order>,
    /// Constants, where they are read.
    pub(crate) constants: BTreeMap<Use, Order>,
}

/// Why values cannot get another order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stuck {
    pub(crate) node: NodeId,
    pub(crate) why: String,
}

/// What is not followed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edges {
    /// Nodes that others will replace.
    pub(crate) replaced: FxHashSet<NodeId>,
    /// Nodes that will rotate features in the new order.
    pub(crate) rotating: FxHashSet<NodeId>,
}

/// Gives values an order, and everything that depends on it.
///
/// # Errors
/// Where a node can have it in none of its values.
pub(crate) fn reordered(
    graph: &Graph,
    trace: &Trace,
    seeds: Vec<(ValueId, NodeId, Order)>,
    edges: &Edges,
) -> Result<Reordered, Stuck> {
    let order = graph.order(graph.main()).unwrap_or_default();
    let outputs = graph.scope(graph.main()).outputs().to_vec();
    let live = above(graph, outputs, |_| true);
    let mut walk = Walk {
        graph,
        trace,
        edges,
        live: live.into_iter().collect(),
        places: order
            .into_iter()
            .enumerate()
            .map(|(at, id)| (id, at))
            .collect(),
        made: Reordered::default(),
        next: vec![],
        selected: BTreeSet::new(),
        joined: BTreeSet::new(),
    };
    for (value, node, order) in seeds {
        walk.give(value, None, order, node)?;
    }
    walk.run()?;
    Ok(walk.made)
}

struct Walk<'a> {
    graph: &'a Graph,
    trace: &'a Trace,
    edges: &'a Edges,
    /// The values whose elements reach an output, and not their sizes alone.
    live: FxHashSet<ValueId>,
    /// Where nodes stand in the order of computation.
    places: FxHashMap<NodeId, usize>,
    made: Reordered,
    /// Values whose readers and producer are to follow.
    next: Vec<ValueId>,
    /// Values of which parts got an order, by the place of their producer, with the axis of the parts.
    selected: BTreeSet<(usize, ValueId, usize)>,
    /// Nodes that join parts, of which some got an order.
    joined: BTreeSet<(usize, NodeId)>,
}

impl Walk<'_> {
    fn run(&mut self) -> Result<(), Stuck> {
        loop {
            while let Some(value) = self.next.pop() {
                self.follow(value)?;
            }
            // The order of a whole is known when those of all its parts are.
            if let Some((_, value, axis)) = self.selected.pop_last() {
                self.select(value, axis)?;
            } else if let Some((_, id)) = self.joined.pop_first() {
                self.join(id)?;
            } else {
                return Ok(());
            }
        }
    }

    /// What reads a value, and what computes it.
    fn follow(&mut self, value: ValueId) -> Result<(), Stuck> {
        let order = self.made.values[&value].clone();
        if let Some((id, slot)) = self.graph.producer(value) {
            self.spread(id, End::Out(slot), &order)?;
        }
        for at in self.graph.uses(value) {
            self.spread(at.node, End::In(at.slot()), &order)?;
        }
        Ok(())
    }

    fn spread(&mut self, id: NodeId, end: End, order: &Order) -> Result<(), Stuck> {
        let mut outputs = self.graph.node(id).outputs().iter().flatten();
        let is_live = outputs.any(|value| self.live.contains(value));
        if self.edges.replaced.contains(&id) || !is_live {
            return Ok(());
        }
        let view = View {
            graph: self.graph,
            trace: self.trace,
            id,
            rotates: self.edges.rotating.contains(&id),
        };
        let stuck = |why| Stuck { node: id, why };
        let spread = view.spread(end, order).map_err(stuck)?;
        for (end, order) in spread.ends {
            let (value, at) = match end {
                End::In(slot) => (view.node().input(slot), Some(Use::new(id, slot))),
                End::Out(slot) => (view.node().output(slot), None),
            };
            if let Some(value) = value {
                self.give(value, at, order, id)?;
            }
        }
        if let Some((value, axis)) = spread.selected {
            let producer = self.graph.producer(value);
            let place = producer.and_then(|(id, _)| self.places.get(&id).copied());
            self.selected.insert((place.unwrap_or(0), value, axis));
        }
        if spread.joined {
            let place = self.places.get(&id).copied().unwrap_or(0);
            self.joined.insert((place, id));
        }
        Ok(())
    }

    /// Gives a value an order. `at` is where a node reads it.
    fn give(
        &mut self,
        value: ValueId,
        at: Option<Use>,
        order: Order,
        node: NodeId,
    ) -> Result<(), Stuck> {
        let conflict = || Stuck {
            node,
            why: format!(
                "{} would need its features in two orders at once",
                self.graph.name(value)
            ),
        };
        if let Some(at) = at.filter(|_| self.graph.stored(value).is_some()) {
            return match self.made.constants.get(&at) {
                None if order.is_unmoved() => Ok(()),
                None => {
                    self.made.constants.insert(at, order);
                    Ok(())
                }
                Some(known) if *known == order => Ok(()),
                Some(_) => Err(conflict()),
            };
        }
        match self.made.values.get(&value) {
            None if order.is_unmoved() => Ok(()),
            None => {
                let is_own = self.graph.value(value).scope() == self.graph.main();
                let is_edge = match self.graph.value(value).def() {
                    Def::Input(_) => true,
                    _ => self.graph.value(value).is_output(),
                };
                if is_edge && !is_own {
                    let name = self.graph.name(value);
                    let why = format!("{name} enters or leaves the body of a node");
                    return Err(Stuck { node, why });
                }
                self.made.values.insert(value, order);
                self.next.push(value);
                Ok(())
            }
            Some(known) if *known == order => Ok(()),
            Some(_) => Err(conflict()),
        }
    }

    /// The order of a value of which nodes read parts.
    fn select(&mut self, value: ValueId, axis: usize) -> Result<(), Stuck> {
        let Some(dims) = self.trace.get(value).dims.clone() else {
            return Ok(());
        };
        let (mut parts, mut others) = (vec![], false);
        let mut first = None;
        for at in self.graph.uses(value) {
            let view = View {
                graph: self.graph,
                trace: self.trace,
                id: at.node,
                rotates: false,
            };
            let parts_of = view.parts(at.slot(), axis).into_iter();
            for part in parts_of.filter(|part| !part.from.is_empty()) {
                match self.made.values.get(&part.value) {
                    Some(order) => {
                        first = first.or(Some(at.node));
                        let order = part.lift(order, axis);
                        parts.push((part.from, order));
                    }
                    None => {
                        others = true;
                        parts.push((part.from, Order::unmoved()));
                    }
                }
            }
        }
        let Some(node) = first else {
            return Ok(());
        };
        let uniform = parts[0].1.clone();
        let is_uniform = !others && !uniform.has(axis) && parts.iter().all(|p| p.1 == uniform);
        let order = match is_uniform {
            true => Some(uniform),
            false => Order::of_parts(&dims, axis, &parts),
        };
        let Some(order) = order else {
            let why = format!(
                "the parts of {} would need its features in different orders",
                self.graph.name(value)
            );
            return Err(Stuck { node, why });
        };
        let slot = |at: &&Use| at.node == node;
        let at = self.graph.uses(value).iter().find(slot).copied();
        self.give(value, at, order, node)
    }

    /// The order of what a node joins from parts.
    fn join(&mut self, id: NodeId) -> Result<(), Stuck> {
        let node = self.graph.node(id);
        let view = View {
            graph: self.graph,
            trace: self.trace,
            id,
            rotates: false,
        };
        let stuck = |why: &str| Stuck {
            node: id,
            why: why.to_owned(),
        };
        let (Some(value), Some(dims)) = (node.output(0), view.dims(End::Out(0))) else {
            return Err(stuck("the sizes of what it joins are unknown"));
        };
        let Some((axis, blocks)) = view.blocks() else {
            return Err(stuck("the sizes of what it joins are unknown"));
        };
        let mut parts = vec![];
        for (slot, block) in blocks.into_iter().enumerate() {
            let order = node.input(slot).and_then(|v| self.made.values.get(&v));
            parts.push((block, order.cloned().unwrap_or(Order::unmoved())));
        }
        let order = Order::of_parts(dims, axis, &parts);
        let order = order.ok_or_else(|| stuck("its parts have features in different orders"))?;
        self.give(value, None, order, id)
    }
}
