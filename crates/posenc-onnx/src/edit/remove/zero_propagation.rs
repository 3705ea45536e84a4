//! Follows a term to remove, as if it were zero, to the sums that it is part of, and replaces them
//! by sums without it.
//!
//! All terms are collected before any is followed, so that a sum that loses several terms is
//! replaced only once.

use std::collections::{BTreeMap, BTreeSet};

use posenc_ir::{Emitter, Graph, Node, NodeId, ScopeId, Use, ValueId};
use rustc_hash::FxHashSet;

use crate::detect::context::Context;
use crate::edit::remove::broadcast::broadcast;
use crate::edit::remove::replacements::Replacements;
use crate::edit::remove::sum::SHAPE;
use crate::error::RewriteError;
use crate::graph::bodies::holder;
use crate::graph::operators::{bias_slots, is_copy, is_layout};

/// Uses that read a term to remove, and uses that read a replaced value.
pub(crate) struct ZeroPropagation<'a> {
    context: Context<'a>,
    /// The position of each node in execution order.
    order: Vec<usize>,
    pending: Pending,
    /// New values for uses, with their dimensions.
    replaced: BTreeMap<Use, (ValueId, Vec<usize>)>,
    /// Masks without a term, by scope, condition, the value that hides and its slot.
    masks: BTreeMap<(ScopeId, ValueId, ValueId, usize), ValueId>,
}

/// The effect of zero inputs on a node.
enum Effect {
    /// These outputs are zeros.
    Zeros(Vec<ValueId>),
    /// It is the sum of the inputs in these slots.
    Sum(Vec<usize>),
    /// It selects between zeros and the mask in this slot.
    Mask(usize),
    /// It adds the input in this slot to the scores of attention.
    Bias(usize),
}

impl<'a> ZeroPropagation<'a> {
    pub(crate) fn new(context: &Context<'a>) -> Self {
        Self {
            context: *context,
            order: execution_order(context.graph()),
            pending: Pending::default(),
            replaced: BTreeMap::new(),
            masks: BTreeMap::new(),
        }
    }

    /// Removes the values that these uses read, as if they were zero.
    pub(crate) fn add_zeros(&mut self, from: &[Use]) {
        for at in from {
            self.read(*at);
        }
    }

    /// Replaces the value that a use reads by another one of these dimensions.
    pub(crate) fn replace_input(&mut self, at: Use, value: ValueId, dims: Vec<usize>) {
        self.replaced.insert(at, (value, dims));
    }

    fn read(&mut self, at: Use) {
        let index = self.order[at.node.index()];
        self.pending.insert(index, at.node, Some(at.slot()));
    }

    /// Replaces the sums.
    ///
    /// # Errors
    /// If a term passes an operator that does not map zeros to zeros.
    pub(crate) fn finish(mut self, out: &mut Emitter<'_>) -> Result<(), RewriteError> {
        let context = self.context;
        let graph = context.graph();
        let mut replacements = Replacements::new(&context);
        let mut zeros = FxHashSet::default();
        while let Some((id, slots)) = self.pending.next() {
            let values = match self.effect(id, &slots, &zeros)? {
                Effect::Zeros(values) => values,
                Effect::Sum(slots) => {
                    self.sum(out, &mut replacements, id, &slots)?;
                    continue;
                }
                Effect::Mask(slot) => {
                    self.mask(out, &mut replacements, id, slot)?;
                    continue;
                }
                Effect::Bias(slot) => {
                    self.omit(out, &mut replacements, id, slot)?;
                    continue;
                }
            };
            for value in values {
                for at in graph.uses(value) {
                    self.read(*at);
                }
                if graph.value(value).is_output() {
                    let holder = self.holder(id)?;
                    let index = self.order[holder.index()];
                    self.pending.insert(index, holder, None);
                }
                zeros.insert(value);
            }
        }
        for (at, (new, _)) in &self.replaced {
            if let Some(old) = graph.node(at.node).input(at.slot()) {
                out.redirect_use(old, *at, *new)?;
            }
        }
        replacements.apply(out)
    }

    /// The node whose body contains this one.
    fn holder(&self, id: NodeId) -> Result<NodeId, RewriteError> {
        let graph = self.context.graph();
        holder(graph, graph.node(id).scope()).ok_or_else(|| {
            let why = "cannot remove the term: it is an output of the model";
            self.context.refuse(id, why)
        })
    }

    /// Replaces a sum by the sum of the inputs in these slots.
    fn sum(
        &self,
        out: &mut Emitter<'_>,
        replacements: &mut Replacements<'_>,
        id: NodeId,
        slots: &[usize],
    ) -> Result<(), RewriteError> {
        let context = &self.context;
        let node = context.graph().node(id);
        let Some(old) = node.output(0) else {
            return Ok(());
        };
        let mut values = vec![];
        let mut dims = Some(vec![]);
        for slot in slots {
            let Some(value) = node.input(*slot) else {
                continue;
            };
            let other = self.replaced.get(&Use::new(id, *slot));
            let own = match other {
                Some((_, dims)) => Some(&dims[..]),
                None => context.dims(value),
            };
            dims = dims.zip(own).and_then(|(all, own)| broadcast(&all, own));
            values.push(other.map_or_else(|| replacements.current(value), |(new, _)| *new));
        }
        self.check_dims(id, old, dims)?;
        out.set_scope(node.scope());
        let new = match values[..] {
            [one] => one,
            [a, b] => out.op("Add", &[a, b]),
            _ => out.op("Sum", &values),
        };
        replacements.replace(old, new);
        Ok(())
    }

    /// Replaces a selection between a term and the mask in this slot by one between zero and the
    /// mask.
    fn mask(
        &mut self,
        out: &mut Emitter<'_>,
        replacements: &mut Replacements<'_>,
        id: NodeId,
        slot: usize,
    ) -> Result<(), RewriteError> {
        let context = self.context;
        let node = context.graph().node(id);
        let (Some(old), Some(which), Some(hidden)) =
            (node.output(0), node.input(0), node.input(slot))
        else {
            return Ok(());
        };
        let dims = context.dims(which).zip(context.dims(hidden));
        self.check_dims(id, old, dims.and_then(|(a, b)| broadcast(a, b)))?;
        let key = (node.scope(), which, hidden, slot);
        let new = *self.masks.entry(key).or_insert_with(|| {
            out.set_scope(node.scope());
            let zero = out.scalar("no_bias", context.dtype(old), 0.0);
            match slot {
                1 => out.op("Where", &[which, hidden, zero]),
                _ => out.op("Where", &[which, zero, hidden]),
            }
        });
        replacements.replace(old, new);
        Ok(())
    }

    /// Replaces an operator of attention by one without the input in this slot.
    fn omit(
        &self,
        out: &mut Emitter<'_>,
        replacements: &mut Replacements<'_>,
        id: NodeId,
        slot: usize,
    ) -> Result<(), RewriteError> {
        let node = self.context.graph().node(id);
        let current = |value: &Option<ValueId>| value.map(|value| replacements.current(value));
        let mut inputs: Vec<Option<ValueId>> = node.inputs().iter().map(current).collect();
        inputs[slot] = None;
        while inputs.pop_if(|v| v.is_none()).is_some() {}
        out.set_scope(node.scope());
        let made = out.copy(id, &inputs, &[])?;
        replacements.replace_outputs(node, &made);
        Ok(())
    }

    /// # Errors
    /// If the new value does not have the shape that its readers need.
    fn check_dims(
        &self,
        id: NodeId,
        old: ValueId,
        dims: Option<Vec<usize>>,
    ) -> Result<(), RewriteError> {
        if !dims.is_some_and(|dims| self.can_replace(old, &dims)) {
            return Err(self.context.refuse(id, SHAPE));
        }
        Ok(())
    }

    /// Whether neither the condition of a `Where` nor its value in this slot depends on content.
    fn is_mask(&self, node: &Node, slot: usize) -> bool {
        let mut inputs = [0, slot].into_iter().map(|slot| node.input(slot));
        inputs.all(|v| v.is_some_and(|v| !self.context.is_content(v)))
    }

    fn effect(
        &self,
        id: NodeId,
        slots: &BTreeSet<usize>,
        zeros: &FxHashSet<ValueId>,
    ) -> Result<Effect, RewriteError> {
        let node = self.context.graph().node(id);
        let is_zero = |slot: usize| node.input(slot).is_none_or(|v| self.is_zero(v));
        let rest = (0..node.inputs().len()).filter(|slot| !slots.contains(slot));
        let rest: Vec<usize> = rest.filter(|slot| !is_zero(*slot)).collect();
        let only_data = slots.len() == 1 && slots.contains(&0);
        let all = || Effect::Zeros(node.outputs().iter().flatten().copied().collect());
        let effect = match (node.domain(), node.op()) {
            ("", "If") if slots.is_empty() => self.branches(node, zeros).map(Effect::Zeros),
            // They read no numbers.
            ("", "Shape" | "Size") => Some(Effect::Zeros(vec![])),
            ("", "Add" | "Sum" | "Sub") if rest.is_empty() => Some(all()),
            ("", "Add" | "Sum") => Some(Effect::Sum(rest)),
            ("", "Sub") => (rest == [0]).then_some(Effect::Sum(rest)),
            ("", "Mul" | "MatMul" | "Einsum") | ("com.microsoft", "FusedMatMul") => Some(all()),
            ("", "Gemm") if node.input(2).is_none() => Some(all()),
            ("", "Concat") if rest.is_empty() => Some(all()),
            ("", "Where") if rest.iter().all(|slot| *slot == 0) => Some(all()),
            ("", "Where") => match rest[..] {
                [0, slot] if self.is_mask(node, slot) => Some(Effect::Mask(slot)),
                _ => None,
            },
            ("", "Pad") if only_data => self.pads_with_zeros(node).then(all),
            ("", op) if only_data && maps_zeros(op) => Some(all()),
            _ => match (bias_slots(node).first(), slots.first()) {
                (Some(bias), Some(slot)) if bias == slot && slots.len() == 1 => {
                    Some(Effect::Bias(*slot))
                }
                _ => None,
            },
        };
        effect.ok_or_else(|| {
            let why = format!("cannot remove the encoding through {}", node.op());
            self.context.refuse(id, why)
        })
    }

    /// Whether a value of these dimensions can replace `old`: it has the same dimensions, or all
    /// readers broadcast it to them.
    fn can_replace(&self, old: ValueId, own: &[usize]) -> bool {
        let (context, graph) = (&self.context, self.context.graph());
        let broadcasts = |at: &Use| {
            let node = graph.node(at.node);
            let sums = ["Add", "Sub", "Sum"].iter().any(|op| node.is(op));
            let others = (0..node.inputs().len()).filter(|slot| *slot != at.slot());
            let mut others = others.filter_map(|slot| context.dims(node.input(slot)?));
            let dims = others.try_fold(own.to_vec(), |dims, other| broadcast(&dims, other));
            // A multiple broadcasts as what it is of.
            let is_multiple = node.is("Mul") || node.is("Div") && at.slot() == 0;
            if let Some(multiple) = node.output(0).filter(|_| is_multiple) {
                let mut factors = node.inputs().iter().flatten().filter(|v| **v != old);
                let is_single =
                    |v: &ValueId| context.dims(*v).is_some_and(|d| d.iter().all(|n| *n == 1));
                return factors.all(is_single) && self.can_replace(multiple, own);
            }
            // The standard operator broadcasts a mask over sequences and heads; ONNX Runtime wants all queries and keys
            // in it.
            if node.is("Attention") && bias_slots(node).first() == Some(&at.slot()) {
                let Some(old) = context.dims(old).filter(|old| old.len() > 1) else {
                    return false;
                };
                return own.ends_with(&old[old.len() - 2..])
                    && broadcast(own, old).as_deref() == Some(old);
            }
            sums && dims.as_deref() == node.output(0).and_then(|sum| context.dims(sum))
        };
        let free = !graph.value(old).is_output() && graph.uses(old).iter().all(broadcasts);
        context.dims(old) == Some(own) || (free && context.dims(old).is_some())
    }

    /// The outputs of an `If` that are zero in every branch; `None` if one is zero in some branches
    /// only.
    fn branches(&self, node: &Node, zeros: &FxHashSet<ValueId>) -> Option<Vec<ValueId>> {
        let graph = self.context.graph();
        let mut removed = vec![];
        for (i, value) in node.outputs().iter().enumerate() {
            let output = |body| graph.scope(body).outputs().get(i).copied();
            let made: Option<Vec<ValueId>> = node.bodies().map(|b| output(b.1)).collect();
            let made = made?;
            if made.iter().all(|v| !zeros.contains(v)) {
                continue;
            }
            let zero = |v: &ValueId| zeros.contains(v) || self.is_zero(*v);
            removed.extend(value.filter(|_| made.iter().all(zero)));
            if !made.iter().all(zero) {
                return None;
            }
        }
        Some(removed)
    }

    /// Whether a value is always zero.
    fn is_zero(&self, value: ValueId) -> bool {
        let found = self.context.found;
        crate::attention::scores::is_zero(&found.classes, &found.trace, value)
    }

    fn pads_with_zeros(&self, node: &Node) -> bool {
        let mode = node.string("mode").ok().flatten();
        mode.is_none_or(|mode| mode == "constant") && node.input(2).is_none_or(|v| self.is_zero(v))
    }
}

/// The position of each node in execution order. Nodes of a body are before the node that contains
/// it.
fn execution_order(graph: &Graph) -> Vec<usize> {
    let mut indices = vec![0; graph.node_count()];
    let mut next = 0;
    let order = |scope| graph.order(scope).unwrap_or_default().into_iter();
    let mut stack = vec![(order(graph.main()), None)];
    while let Some((nodes, holder)) = stack.last_mut() {
        let Some(id) = nodes.next() else {
            if let Some(holder) = holder.take() {
                indices[NodeId::index(holder)] = next;
                next += 1;
            }
            stack.pop();
            continue;
        };
        let bodies: Vec<_> = graph.node(id).bodies().map(|b| b.1).collect();
        match bodies.split_first() {
            None => {
                indices[id.index()] = next;
                next += 1;
            }
            Some((first, rest)) => {
                // The holder gets its index when the last of its bodies is done.
                stack.push((order(*first), Some(id)));
                stack.extend(rest.iter().map(|body| (order(*body), None)));
            }
        }
    }
    indices
}

/// Nodes that read zeros, in execution order, with the slots by which they do.
#[derive(Default)]
struct Pending(BTreeMap<(usize, NodeId), BTreeSet<usize>>);

impl Pending {
    fn insert(&mut self, index: usize, id: NodeId, slot: Option<usize>) {
        self.0.entry((index, id)).or_default().extend(slot);
    }

    fn next(&mut self) -> Option<(NodeId, BTreeSet<usize>)> {
        self.0.pop_first().map(|((_, id), slots)| (id, slots))
    }
}

/// Operators that map zeros in their first input to zeros.
fn maps_zeros(op: &str) -> bool {
    is_layout(op)
        || is_copy(op)
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
                | "ReduceSum"
                | "QuantizeLinear"
                | "DequantizeLinear"
        )
}
