//! Removes what is added to the residual stream: learned tables and sinusoids.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use posenc_ir::{Emitter, NodeId, Use};
use rustc_hash::FxHashMap;

use super::coordinates::Coordinates;
use super::fused;
use super::remainder::{Remainder, remainder};
use super::sum::sum_of_rest;
use crate::attention::stream::{Join, Stream, Tokens, back};
use crate::detect::context::Context;
use crate::detect::finding::Finding;
use crate::edit::remove::replacements::Replacements;
use crate::error::RewriteError;
use crate::graph::operators::is_skip_norm;

/// What is added to the residual stream: the use by which it enters, with the token axes of the sum.
/// Computed on first use.
pub(crate) struct StreamAdditions<'a> {
    context: &'a Context<'a>,
    tokens: OnceCell<FxHashMap<Use, Tokens>>,
}

impl<'a> StreamAdditions<'a> {
    pub(crate) fn new(context: &'a Context<'a>) -> Self {
        Self {
            context,
            tokens: OnceCell::new(),
        }
    }

    fn tokens(&self) -> &FxHashMap<Use, Tokens> {
        let found = self.context.found;
        self.tokens.get_or_init(|| {
            let graph = self.context.graph();
            let stream = Stream::of(graph, &found.classes, &found.trace, &found.attention);
            let additions = stream.additions.iter();
            let sums = additions.filter(|sum| sum.join == Join::Summed);
            sums.map(|sum| (sum.entry, sum.tokens)).collect()
        })
    }

    /// Whether a finding is added to the stream and does nothing else.
    pub(crate) fn adds(&self, finding: &Finding) -> bool {
        let mut entries = finding.entries.iter();
        !finding.entries.is_empty() && entries.all(|at| self.tokens().contains_key(at))
    }
}

/// The summands to remove.
pub(crate) struct Summands<'a> {
    context: &'a Context<'a>,
    /// The slots by which they enter, by node.
    entries: BTreeMap<NodeId, Vec<usize>>,
    additions: &'a StreamAdditions<'a>,
    /// Rows that coordinates of the input select.
    selected: Coordinates,
}

impl<'a> Summands<'a> {
    pub(crate) fn of(
        context: &'a Context<'a>,
        additions: &'a StreamAdditions<'a>,
        found: &[&Finding],
    ) -> Result<Self, RewriteError> {
        let graph = context.graph();
        let all = found.iter().flat_map(|f| f.entries.iter().copied());
        let (lookups, mut uses): (Vec<Use>, Vec<Use>) =
            all.partition(|at| graph.node(at.node).is("Gather"));
        let selected = Coordinates::of(context, &lookups)?;
        uses.extend(&selected.entries);
        // Several tables may form one summand.
        uses.sort_unstable();
        uses.dedup();
        let mut entries: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
        for at in uses {
            entries.entry(at.node).or_default().push(at.slot());
        }
        Ok(Self {
            context,
            entries,
            additions,
            selected,
        })
    }

    /// The nodes that add the summands.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.entries.keys().copied()
    }

    /// Removes position from the summands of a node.
    pub(crate) fn remove(
        &self,
        out: &mut Emitter<'_>,
        replacements: &mut Replacements<'_>,
        id: NodeId,
    ) -> Result<(), RewriteError> {
        let context = self.context;
        let node = context.graph().node(id);
        out.set_scope(node.scope());
        if node.op() == "EmbedLayerNormalization" {
            return fused::embedding(out, context, replacements, id);
        }
        let mut remainders = BTreeMap::new();
        for slot in self.entries.get(&id).into_iter().flatten() {
            remainders.insert(*slot, self.remainder(out, Use::new(id, *slot))?);
        }
        let all_remain = remainders.values().all(|r| *r != Remainder::Nothing);
        match (node.domain(), node.op()) {
            ("", "Add" | "Sum" | "Sub" | "Gemm") if all_remain => {
                for (slot, rest) in remainders {
                    if let (Some(old), Remainder::Value(new)) = (node.input(slot), rest) {
                        out.redirect_use(old, Use::new(id, slot), new)?;
                    }
                }
                Ok(())
            }
            ("", "Sub") => difference(out, context, replacements, id, &remainders),
            ("", "Add" | "Sum") | ("com.microsoft", "BiasAdd") => {
                let Some(sum) = node.output(0) else {
                    return Ok(());
                };
                let new = sum_of_rest(out, context, replacements, id, &remainders)?;
                replacements.replace(sum, new);
                Ok(())
            }
            ("", "Gemm") => {
                let inputs: Vec<_> = node.inputs().iter().take(2).copied().collect();
                let inputs: Vec<_> = inputs
                    .iter()
                    .map(|v| v.map(|v| replacements.current(v)))
                    .collect();
                let new = out.copy(id, &inputs, &[])?;
                replacements.replace_outputs(node, &new);
                Ok(())
            }
            _ if is_skip_norm(node) => fused::skip(out, context, replacements, id, &remainders),
            ("com.microsoft", "QLinearAdd") => {
                fused::quantized(out, context, replacements, id, &remainders)
            }
            (_, op) => Err(context.refuse(
                id,
                format!("cannot remove the encoding: {op} is not supported yet"),
            )),
        }
    }

    /// The part of a summand that does not depend on position.
    fn remainder(&self, out: &mut Emitter<'_>, at: Use) -> Result<Remainder, RewriteError> {
        let (context, graph) = (self.context, self.context.graph());
        let summand = graph.node(at.node).input(at.slot());
        let Some(summand) = summand.filter(|v| !self.selected.has(*v)) else {
            return Ok(Remainder::Nothing);
        };
        let trace = &context.found.trace;
        let tokens = self.additions.tokens().get(&at);
        let tokens = tokens.and_then(|t| back(graph, trace, at.node, 0, at.slot(), *t));
        match tokens {
            Some(tokens) => remainder(out, context, at.node, summand, tokens),
            None => Err(context.refuse(
                at.node,
                "cannot remove the encoding: the token axis of the sum is not known",
            )),
        }
    }
}

/// Replaces a difference by the side to keep.
fn difference(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    replacements: &mut Replacements<'_>,
    id: NodeId,
    remainders: &BTreeMap<usize, Remainder>,
) -> Result<(), RewriteError> {
    let node = context.graph().node(id);
    let Some(sum) = node.output(0) else {
        return Ok(());
    };
    let other = sum_of_rest(out, context, replacements, id, remainders)?;
    let new = if remainders.contains_key(&0) {
        out.op("Neg", &[other])
    } else {
        other
    };
    replacements.replace(sum, new);
    Ok(())
}
