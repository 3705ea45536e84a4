//! What position adds, followed from where it enters to the sums that it is a part of: these give
//! way to what else they add up.

use std::collections::{BTreeMap, BTreeSet};

use posenc_ir::{Emitter, Node, NodeId, Use, ValueId};

use crate::dataflow::Class;
use crate::rewrite::RewriteError;
use crate::swap::Ground;

/// Sums that give way, by what takes their place.
pub(super) struct Zeros<'a> {
    ground: Ground<'a>,
    /// The order of computation within each scope, by node.
    turns: Vec<usize>,
    instead: BTreeMap<ValueId, ValueId>,
}

/// What becomes of a node some of whose inputs are zero.
enum Fate {
    /// It gives zeros.
    Zero,
    /// It gives what this value is.
    Passes(ValueId),
    /// It adds up these.
    Sums(Vec<ValueId>),
    /// It reads no numbers.
    Same,
}

impl<'a> Zeros<'a> {
    pub(super) fn new(ground: &Ground<'a>) -> Self {
        let graph = ground.graph();
        let mut turns = vec![0; graph.node_count()];
        for scope in graph.scopes() {
            for (turn, id) in graph.order(scope).unwrap_or_default().iter().enumerate() {
                turns[id.index()] = turn;
            }
        }
        Self {
            ground: *ground,
            turns,
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
        let turn = |turns: &[usize], at: Use| (turns.get(at.node.index()).copied(), at.node);
        let mut pending: BTreeMap<(Option<usize>, NodeId), BTreeSet<usize>> = BTreeMap::new();
        for at in from {
            let slots = pending.entry(turn(&self.turns, *at)).or_default();
            slots.insert(at.slot());
        }
        while let Some(((_, id), slots)) = pending.pop_first() {
            let outputs: Vec<ValueId> =
                graph.node(id).outputs().iter().flatten().copied().collect();
            match self.fate(id, &slots)? {
                Fate::Same => {}
                Fate::Passes(value) => self.passes(id, &outputs, value)?,
                Fate::Sums(values) => {
                    out.set_scope(graph.node(id).scope());
                    let sum = out.op("Sum", &values);
                    self.instead.extend(outputs.iter().map(|old| (*old, sum)));
                }
                Fate::Zero => {
                    for value in outputs {
                        self.check_inner(id, value)?;
                        for at in graph.uses(value) {
                            let slots = pending.entry(turn(&self.turns, *at)).or_default();
                            slots.insert(at.slot());
                        }
                    }
                }
            }
        }
        Ok(())
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
        if ground.dims(*old).is_none() || ground.dims(*old) != ground.dims(value) {
            let why = "what position adds here gives the sum its shape";
            return Err(ground.refuse(id, why));
        }
        self.instead.insert(*old, value);
        Ok(())
    }

    /// Refuses zeros that something other than the nodes of this scope reads.
    fn check_inner(&self, id: NodeId, value: ValueId) -> Result<(), RewriteError> {
        let graph = self.ground.graph();
        let scope = graph.node(id).scope();
        let outside = |at: &Use| graph.node(at.node).scope() != scope;
        if graph.value(value).is_output() || graph.uses(value).iter().any(outside) {
            let why = "what position adds is read before it is added";
            return Err(self.ground.refuse(id, why));
        }
        Ok(())
    }

    fn fate(&self, id: NodeId, slots: &BTreeSet<usize>) -> Result<Fate, RewriteError> {
        let node = self.ground.graph().node(id);
        let rest = (0..node.inputs().len()).filter(|slot| !slots.contains(slot));
        let others = rest.filter_map(|slot| node.input(slot));
        let others: Vec<ValueId> = others.filter(|v| !self.is_zero(*v)).collect();
        let zero = |slot: usize| {
            slots.contains(&slot) || node.input(slot).is_some_and(|v| self.is_zero(v))
        };
        let data_alone = slots.len() == 1 && slots.contains(&0);
        let fate = match (node.domain(), node.op()) {
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
