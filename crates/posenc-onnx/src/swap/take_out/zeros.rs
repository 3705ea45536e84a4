//! What position adds, followed from where it enters to the sums that it is a part of: these give
//! way to what else they add up.

use std::collections::{BTreeMap, BTreeSet};

use posenc_ir::{Emitter, Graph, Node, NodeId, ScopeKind, Use, ValueId};
use rustc_hash::FxHashSet;

use super::broadcast;
use crate::dataflow::Class;
use crate::rewrite::RewriteError;
use crate::swap::Ground;

/// Sums that give way, by what takes their place.
pub(super) struct Zeros<'a> {
    ground: Ground<'a>,
    /// The order of computation, by node.
    turns: Vec<usize>,
    instead: BTreeMap<ValueId, ValueId>,
}

/// What becomes of a node some of whose inputs are zero.
enum Fate {
    /// It gives zeros.
    Zero,
    /// These outputs are zeros.
    Zeros(Vec<ValueId>),
    /// It gives what this value is.
    Passes(ValueId),
    /// It adds up these.
    Sums(Vec<ValueId>),
    /// It reads no numbers.
    Same,
}

impl<'a> Zeros<'a> {
    pub(super) fn new(ground: &Ground<'a>) -> Self {
        Self {
            ground: *ground,
            turns: turns(ground.graph()),
            instead: BTreeMap::new(),
        }
    }

    /// Takes out what these uses read, as if it were zero.
    ///
    /// # Errors
    /// Where zeros go through an operator that does not keep them.
    pub(super) fn follow(
        &mut self,
        out: &mut Emitter<'_>,
        from: &[Use],
    ) -> Result<(), RewriteError> {
        let graph = self.ground.graph();
        let mut pending = Pending::default();
        for at in from {
            pending.insert(self.turns[at.node.index()], at.node, Some(at.slot()));
        }
        let mut zeros = FxHashSet::default();
        while let Some((id, slots)) = pending.next() {
            let node = graph.node(id);
            let outputs: Vec<ValueId> = node.outputs().iter().flatten().copied().collect();
            let gone = match self.fate(id, &slots, &zeros)? {
                Fate::Same => vec![],
                Fate::Zero => outputs,
                Fate::Zeros(values) => values,
                Fate::Passes(value) => {
                    self.passes(id, &outputs, value)?;
                    vec![]
                }
                Fate::Sums(values) => {
                    out.set_scope(node.scope());
                    let sum = out.op("Sum", &values);
                    self.instead.extend(outputs.iter().map(|old| (*old, sum)));
                    vec![]
                }
            };
            for value in gone {
                for at in graph.uses(value) {
                    pending.insert(self.turns[at.node.index()], at.node, Some(at.slot()));
                }
                if graph.value(value).is_output() {
                    let holder = self.holder(id)?;
                    pending.insert(self.turns[holder.index()], holder, None);
                }
                zeros.insert(value);
            }
        }
        Ok(())
    }

    /// The node whose body this one stands in.
    fn holder(&self, id: NodeId) -> Result<NodeId, RewriteError> {
        let graph = self.ground.graph();
        match graph.scope(graph.node(id).scope()).kind() {
            ScopeKind::Body(holder, _) => Ok(*holder),
            _ => {
                let why = "what position adds is an output of the model";
                Err(self.ground.refuse(id, why))
            }
        }
    }

    /// Moves the readers of the sums.
    pub(super) fn finish(self, out: &mut Emitter<'_>) -> Result<(), RewriteError> {
        for (old, first) in &self.instead {
            let mut new = *first;
            // What takes a sum's place may be a sum that gives way itself; it stands before.
            while let Some(next) = self.instead.get(&new) {
                new = *next;
            }
            out.redirect(*old, new)?;
        }
        Ok(())
    }

    fn passes(
        &mut self,
        id: NodeId,
        outputs: &[ValueId],
        value: ValueId,
    ) -> Result<(), RewriteError> {
        let ground = &self.ground;
        let [old] = outputs else {
            return Err(ground.refuse(id, "it has several outputs"));
        };
        if !self.stands_for(*old, value) {
            let why = "what position adds here gives the sum its shape";
            return Err(ground.refuse(id, why));
        }
        self.instead.insert(*old, value);
        Ok(())
    }

    fn fate(
        &self,
        id: NodeId,
        slots: &BTreeSet<usize>,
        zeros: &FxHashSet<ValueId>,
    ) -> Result<Fate, RewriteError> {
        let node = self.ground.graph().node(id);
        let rest = (0..node.inputs().len()).filter(|slot| !slots.contains(slot));
        let others = rest.filter_map(|slot| node.input(slot));
        let others: Vec<ValueId> = others.filter(|v| !self.is_zero(*v)).collect();
        let zero = |slot: usize| {
            slots.contains(&slot) || node.input(slot).is_some_and(|v| self.is_zero(v))
        };
        let data_alone = slots.len() == 1 && slots.contains(&0);
        let fate = match (node.domain(), node.op()) {
            ("", "If") if slots.is_empty() => self.branches(node, zeros).map(Fate::Zeros),
            ("", "Shape" | "Size") => Some(Fate::Same),
            ("", "Add" | "Sum") => Some(match others[..] {
                [] => Fate::Zero,
                [value] => Fate::Passes(value),
                _ => Fate::Sums(others),
            }),
            ("", "Sub") => match others[..] {
                [] => Some(Fate::Zero),
                [value] if zero(1) => Some(Fate::Passes(value)),
                _ => None,
            },
            ("", "Mul" | "MatMul" | "Einsum") | ("com.microsoft", "FusedMatMul") => {
                Some(Fate::Zero)
            }
            ("", "Gemm") if node.input(2).is_none() => Some(Fate::Zero),
            ("", "Concat") if others.is_empty() => Some(Fate::Zero),
            ("", "Where") if zero(1) && zero(2) => Some(Fate::Zero),
            ("", "Pad") if data_alone => self.pads_with_zeros(node).then_some(Fate::Zero),
            ("", op) if data_alone && keeps_zeros(op) => Some(Fate::Zero),
            _ => None,
        };
        fate.ok_or_else(|| {
            let why = "what position adds goes through this operator before it joins the rest";
            self.ground.refuse(id, why)
        })
    }

    /// Whether a value has the dimensions of another, or is broadcast to them wherever that is read.
    fn stands_for(&self, old: ValueId, value: ValueId) -> bool {
        let (ground, graph) = (&self.ground, self.ground.graph());
        let Some((all, own)) = ground.dims(old).zip(ground.dims(value)) else {
            return false;
        };
        let broadcasts = |at: &Use| {
            let node = graph.node(at.node);
            let sums = ["Add", "Sub", "Sum"].iter().any(|op| node.is(op));
            let others = (0..node.inputs().len()).filter(|slot| *slot != at.slot());
            let mut others = others.filter_map(|slot| ground.dims(node.input(slot)?));
            let dims = others.try_fold(own.to_vec(), |dims, other| broadcast(&dims, other));
            sums && dims.as_deref() == node.output(0).and_then(|sum| ground.dims(sum))
        };
        let free = !graph.value(old).is_output() && graph.uses(old).iter().all(broadcasts);
        all == own || free
    }

    /// The outputs of an `If` that are zero whichever branch is taken; `None` where one is so in
    /// some branches alone.
    fn branches(&self, node: &Node, zeros: &FxHashSet<ValueId>) -> Option<Vec<ValueId>> {
        let graph = self.ground.graph();
        let mut gone = vec![];
        for (i, value) in node.outputs().iter().enumerate() {
            let made = |body| graph.scope(body).outputs().get(i).copied();
            let made: Option<Vec<ValueId>> = node.bodies().map(|b| made(b.1)).collect();
            let made = made?;
            if made.iter().all(|v| !zeros.contains(v)) {
                continue;
            }
            let zero = |v: &ValueId| zeros.contains(v) || self.is_zero(*v);
            gone.extend(value.filter(|_| made.iter().all(zero)));
            if !made.iter().all(zero) {
                return None;
            }
        }
        Some(gone)
    }

    /// Whether a value is zero throughout, whatever is fed.
    fn is_zero(&self, value: ValueId) -> bool {
        let class = self.ground.found.classes.of_value(value);
        let masks = [Class::CONTENT, Class::PADDING, Class::POSITION];
        if masks.iter().any(|mask| class.has(*mask)) {
            return false;
        }
        let known = self.ground.found.trace.get(value).to_f64();
        known.is_some_and(|data| data.iter().all(|v| *v == 0.0))
    }

    fn pads_with_zeros(&self, node: &Node) -> bool {
        let mode = node.string("mode").ok().flatten();
        mode.is_none_or(|mode| mode == "constant") && node.input(2).is_none_or(|v| self.is_zero(v))
    }
}

/// The place of each node in the order of computation, what stands in a body before its holder.
fn turns(graph: &Graph) -> Vec<usize> {
    let mut turns = vec![0; graph.node_count()];
    let mut next = 0;
    let order = |scope| graph.order(scope).unwrap_or_default().into_iter();
    let mut stack = vec![(order(graph.main()), None)];
    while let Some((nodes, holder)) = stack.last_mut() {
        let Some(id) = nodes.next() else {
            if let Some(holder) = holder.take() {
                turns[NodeId::index(holder)] = next;
                next += 1;
            }
            stack.pop();
            continue;
        };
        let bodies: Vec<_> = graph.node(id).bodies().map(|b| b.1).collect();
        match bodies.split_first() {
            None => {
                turns[id.index()] = next;
                next += 1;
            }
            Some((first, rest)) => {
                // The holder's own turn comes when the lowest of its bodies is done.
                stack.push((order(*first), Some(id)));
                stack.extend(rest.iter().map(|body| (order(*body), None)));
            }
        }
    }
    turns
}

/// Nodes that read zeros, in order of computation, and where they do.
#[derive(Default)]
struct Pending(BTreeMap<(usize, NodeId), BTreeSet<usize>>);

impl Pending {
    fn insert(&mut self, turn: usize, id: NodeId, slot: Option<usize>) {
        self.0.entry((turn, id)).or_default().extend(slot);
    }

    fn next(&mut self) -> Option<(NodeId, BTreeSet<usize>)> {
        self.0.pop_first().map(|((_, id), slots)| (id, slots))
    }
}

/// Operators that move, scale or sum up their first input.
fn keeps_zeros(op: &str) -> bool {
    crate::lane::is_layout(op)
        || matches!(
            op,
            "Slice"
                | "Split"
                | "Gather"
                | "GatherElements"
                | "GatherND"
                | "Trilu"
                | "Div"
                | "Neg"
                | "Cast"
                | "CastLike"
                | "Identity"
                | "Dropout"
                | "ReduceSum"
                | "QuantizeLinear"
                | "DequantizeLinear"
        )
}
