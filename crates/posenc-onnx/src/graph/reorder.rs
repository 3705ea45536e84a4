//! Follows another order of features through a graph: from some values to all that have to get it with them, and
//! to the weights that give it to them.
//!
//! Queries and keys may have their features in any order, as long as it is the same: their product sums over
//! them. Weights, biases and norms in the new order put them there without a node more.

mod attention;
mod bodies;
mod fixed;
mod moves;
mod order;
mod products;
mod rules;
mod spread;

use std::collections::{BTreeMap, BTreeSet};

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, NodeId, ScopeId, Use, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::graph::region::above;
pub(crate) use bodies::Borders;
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

/// The nodes of rotations, which will rotate features in the new order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rotating {
    /// Plain operators, which others will replace: they are not followed.
    pub(crate) replaced: FxHashSet<NodeId>,
    /// Operators that rotate, which will do so in another layout.
    pub(crate) turned: FxHashSet<NodeId>,
}

/// Gives values an order, and everything that depends on it. Each of the `seeds` is a value with the node that needs
/// it in that order; `opset` is the version of ai.onnx. The two runs have lengths that differ wherever they are open;
/// without the second, no size is known to be fixed.
///
/// # Errors
/// Where a node does not take its values in the orders that they get.
pub(crate) fn reordered(
    (graph, opset): (&Graph, i64),
    (trace, other): (&Trace, Option<&Trace>),
    seeds: Vec<(ValueId, NodeId, Order)>,
    rotating: &Rotating,
) -> Result<Reordered, Stuck> {
    let mut places = FxHashMap::default();
    number(graph, graph.main(), &mut places);
    let borders = Borders::new(graph, trace);
    let mut outputs = graph.scope(graph.main()).outputs().to_vec();
    outputs.extend(borders.leaving());
    let live = above(graph, outputs, |_| true);
    let mut walk = Walk {
        graph,
        opset,
        trace,
        other,
        rotating,
        live: live.into_iter().collect(),
        borders,
        places,
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

/// Numbers nodes in the order of computation, those of a body before the node that has it.
fn number(graph: &Graph, scope: ScopeId, places: &mut FxHashMap<NodeId, usize>) {
    for id in graph.order(scope).unwrap_or_default() {
        for (_, body) in graph.node(id).bodies() {
            number(graph, body, places);
        }
        places.insert(id, places.len());
    }
}

struct Walk<'a> {
    graph: &'a Graph,
    opset: i64,
    trace: &'a Trace,
    other: Option<&'a Trace>,
    rotating: &'a Rotating,
    /// The values whose elements reach an output, and not their sizes alone.
    live: FxHashSet<ValueId>,
    borders: Borders<'a>,
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
        let beyond = self.borders.beyond(value, &order);
        let beyond = beyond.map_err(|node| Stuck {
            node,
            why: format!(
                "{} enters or leaves its body in a way that is not followed",
                self.graph.name(value)
            ),
        })?;
        for other in beyond {
            self.give(other.value, other.at, other.order, other.node)?;
        }
        Ok(())
    }

    fn view(&self, id: NodeId) -> View<'_> {
        View {
            graph: self.graph,
            opset: self.opset,
            trace: self.trace,
            other: self.other,
            live: &self.live,
            id,
            is_turned: self.rotating.turned.contains(&id),
        }
    }

    fn spread(&mut self, id: NodeId, end: End, order: &Order) -> Result<(), Stuck> {
        let node = self.graph.node(id);
        let mut outputs = node.outputs().iter().flatten();
        let is_live = outputs.any(|value| self.live.contains(value));
        let has_bodies = node.domain().is_empty() && node.bodies().next().is_some();
        if self.rotating.replaced.contains(&id) || !is_live || has_bodies {
            return Ok(());
        }
        let view = self.view(id);
        let stuck = |why| Stuck { node: id, why };
        let spread = view.spread(end, order).map_err(stuck)?;
        for (end, order) in spread.ends {
            let (value, at) = match end {
                End::In(slot) => (node.input(slot), Some(Use::new(id, slot))),
                End::Out(slot) => (node.output(slot), None),
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
        // Features are as many at all lengths.
        let runs = std::iter::once(self.trace).chain(self.other);
        let mut dims = runs.map(|run| run.get(value).dims.as_deref());
        match self.made.values.get(&value) {
            None if order.is_unmoved() => Ok(()),
            None if dims.any(|dims| dims.is_none_or(|dims| !order.fits(dims))) => Err(Stuck {
                node,
                why: format!(
                    "{} has other features than those that move",
                    self.graph.name(value)
                ),
            }),
            None => {
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
        let mut readers = vec![];
        for at in self.graph.uses(value) {
            for part in self.view(at.node).parts(at.slot(), axis) {
                match self.made.values.get(&part.value) {
                    Some(order) => {
                        readers.push(*at);
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
        let Some(at) = readers.first() else {
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
            return Err(Stuck { node: at.node, why });
        };
        // Of a constant, each of them reads a copy in that order.
        for at in &readers {
            self.give(value, Some(*at), order.clone(), at.node)?;
        }
        Ok(())
    }

    /// The order of what a node joins from parts.
    fn join(&mut self, id: NodeId) -> Result<(), Stuck> {
        let (node, view) = (self.graph.node(id), self.view(id));
        let stuck = |why: &str| Stuck {
            node: id,
            why: why.to_owned(),
        };
        let value = node.output(0).zip(view.dims(End::Out(0)));
        let Some(((value, dims), (axis, blocks))) = value.zip(view.blocks()) else {
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
