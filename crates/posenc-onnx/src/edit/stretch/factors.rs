//! Divides biases by a number where they enter the scores, or distances where buckets are computed of
//! them.

use posenc_ir::{Emitter, NodeId, ScopeId, Use, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::attention::mask::HIDES;
use crate::attention::scores::entries;
use crate::detect::context::Context;
use crate::detect::distances::are_distances;
use crate::detect::may_bias;
use crate::error::RewriteError;
use crate::graph::ports::{Port, Role};
use crate::graph::region::{above, ancestors, shape_only};
use crate::plan::stretch::Divided;

/// What hides a key has to stay below this one.
const HIDDEN: f64 = -5e3;

/// What was divided.
#[derive(Default)]
pub(super) struct Factors {
    /// Biases and distances, by the scope in which they are read; sites share them.
    divided: FxHashMap<(ScopeId, ValueId), ValueId>,
    /// Where these are read: branches share what is around them.
    pub(super) done: FxHashSet<Use>,
}

impl Factors {
    /// Divides a bias at every place where it enters.
    pub(super) fn divide(
        &mut self,
        out: &mut Emitter<'_>,
        context: &Context<'_>,
        bias: &Divided,
    ) -> Result<(), RewriteError> {
        let graph = context.graph();
        let (found, trace) = (context.found, &context.found.trace);
        let finding = &found.findings[bias.finding];
        let of_site = |site: &usize| entries(graph, &found.classes, trace, context.site(*site));
        let mut places: Vec<Use> = finding.sites.iter().flat_map(of_site).collect();
        // Masks that enter by themselves stay.
        places.retain(|at| may_bias(graph, trace, *at));
        // So do sinks, and what else is the same for all pairs of tokens.
        places.retain(|at| varies(context, *at));
        places.sort_unstable();
        places.dedup();
        if bias.of_distances {
            return self.divide_distances(out, context, bias, &places);
        }
        places.retain(|at| self.done.insert(*at));
        for entry in &places {
            let node = graph.node(entry.node);
            let Some(value) = node.input(entry.slot()) else {
                continue;
            };
            let key = (node.scope(), value);
            if !self.divided.contains_key(&key) {
                check_bias(context, entry.node, value, bias.factor)?;
            }
            let divided = self.quotient(out, context, key, bias.factor);
            out.redirect_use(value, *entry, divided)?;
        }
        Ok(())
    }

    /// A value divided by a factor in a scope, once.
    pub(super) fn quotient(
        &mut self,
        out: &mut Emitter<'_>,
        context: &Context<'_>,
        (scope, value): (ScopeId, ValueId),
        factor: f64,
    ) -> ValueId {
        *self.divided.entry((scope, value)).or_insert_with(|| {
            out.set_scope(scope);
            let factor = out.scalar("factor", context.dtype(value), factor);
            out.op("Div", &[value, factor])
        })
    }

    /// Divides the distances of which a bias is computed, towards zero.
    fn divide_distances(
        &mut self,
        out: &mut Emitter<'_>,
        context: &Context<'_>,
        bias: &Divided,
        places: &[Use],
    ) -> Result<(), RewriteError> {
        let graph = context.graph();
        let entering = places
            .iter()
            .filter_map(|at| graph.node(at.node).input(at.slot()));
        let classes = &context.found.classes;
        let above: FxHashSet<ValueId> = ancestors(graph, classes, entering.collect())
            .into_iter()
            .collect();
        let distances: Vec<ValueId> = above
            .iter()
            .copied()
            .filter(|v| are_distances(context, *v))
            .collect();
        // Of values that are distances, those that the others are computed from.
        let first = |value: &ValueId| {
            let before = ancestors(graph, classes, vec![*value]);
            !distances.iter().any(|d| d != value && before.contains(d))
        };
        let first: Vec<ValueId> = distances.iter().copied().filter(first).collect();
        if first.is_empty() {
            let why = "the distances of which the buckets are computed were not found";
            return Err(match places.first() {
                Some(at) => context.refuse(at.node, why),
                None => crate::error::Refusal::unsupported(why).into(),
            });
        }
        for value in first {
            let key = (graph.value(value).scope(), value);
            let divided = self.quotient(out, context, key, bias.factor);
            let leads = |at: &&Use| {
                let outputs = graph.node(at.node).outputs().iter().flatten();
                outputs.into_iter().any(|made| above.contains(made))
            };
            for at in graph.uses(value).iter().filter(leads) {
                if self.done.insert(*at) {
                    check_buckets(context, *at)?;
                    out.redirect_use(value, *at, divided)?;
                }
            }
        }
        Ok(())
    }
}

/// Whether what enters is not known to be the same for all queries and keys.
fn varies(context: &Context<'_>, at: Use) -> bool {
    let value = context.graph().node(at.node).input(at.slot());
    let Some(numbers) = value.and_then(|value| context.found.trace.get(value).to_f64()) else {
        return true;
    };
    let pairs = numbers.shape().iter().rev().take(2).product::<usize>();
    let all: Vec<f64> = numbers.iter().copied().collect();
    let mut planes = all.chunks(pairs.max(1));
    planes.any(|plane| plane.iter().any(|v| *v != plane[0]))
}

/// Refuses a bias that is joined with a mask or with numbers of the tokens: divided, these would change too.
fn check_bias(
    context: &Context<'_>,
    at: NodeId,
    value: ValueId,
    factor: f64,
) -> Result<(), RewriteError> {
    if reads_tokens(context, value) {
        let why = "the bias and numbers of the tokens enter as one value, and divided by the factor these \
                   would change too";
        return Err(context.refuse(at, why));
    }
    let numbers = context.found.trace.get(value).to_f64();
    let mut hides = numbers.iter().flatten().filter(|v| **v <= HIDES);
    if !hides.all(|v| v / factor < HIDDEN) {
        let why = "the bias and a mask enter as one value, and divided by the factor the mask would no \
                   longer hide keys";
        return Err(context.refuse(at, why));
    }
    Ok(())
}

/// Whether a value is computed of what the tokens are, and not of their places alone.
fn reads_tokens(context: &Context<'_>, value: ValueId) -> bool {
    if context.is_content(value) {
        return true;
    }
    let tokens =
        |port: &&Port| matches!(port.role, Role::Tokens | Role::TokenTypes | Role::Content);
    let ports = context.found.ports.iter().filter(tokens);
    let ports: FxHashSet<ValueId> = ports.map(|port| port.value).collect();
    let above = above(context.graph(), vec![value], |_| true);
    above.iter().any(|value| ports.contains(value))
}

/// Refuses distances that act on anything but which row of a table is picked: divided, they would hide other
/// keys.
fn check_buckets(context: &Context<'_>, from: Use) -> Result<(), RewriteError> {
    let graph = context.graph();
    let is_constant = |value: ValueId| context.found.classes.of_value(value).is_constant();
    let mut stack = vec![from];
    let mut seen: FxHashSet<Use> = stack.iter().copied().collect();
    while let Some(at) = stack.pop() {
        let node = graph.node(at.node);
        let picks = match (node.op(), node.domain()) {
            ("Gather" | "GatherElements", "") => {
                at.slot() == 1 && node.input(0).is_some_and(is_constant)
            }
            ("OneHot", "") => at.slot() == 0,
            _ => false,
        };
        if picks || shape_only(graph, at.node) {
            continue;
        }
        let outputs = node.outputs().iter().flatten().copied();
        for made in outputs {
            if context.is_content(made) || graph.value(made).is_output() {
                let why = "the distances of the buckets act on something else too, which would change with them";
                return Err(context.refuse(at.node, why));
            }
            let uses = graph.uses(made).iter().copied();
            stack.extend(uses.filter(|next| seen.insert(*next)));
        }
    }
    Ok(())
}
