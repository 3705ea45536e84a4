//! Divides biases by a number where they enter the scores.

use posenc_ir::{Emitter, ScopeId, Use, ValueId};
use rustc_hash::FxHashMap;

use crate::attention::scores::entries;
use crate::detect::context::Context;
use crate::detect::may_bias;
use crate::error::RewriteError;
use crate::plan::stretch::Divided;

/// Numbers of the trial run below this one hide a key: no bias of a few tokens is as large.
const HIDES: f64 = -1e3;

/// What hides a key has to stay below this one.
const HIDDEN: f64 = -5e3;

/// Biases that were divided, by the scope in which they are read; sites share them.
#[derive(Default)]
pub(super) struct Factors(FxHashMap<(ScopeId, ValueId), ValueId>);

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
        places.sort_unstable();
        places.dedup();
        for entry in &places {
            let node = graph.node(entry.node);
            let Some(value) = node.input(entry.slot()) else {
                continue;
            };
            let numbers = trace.get(value).to_f64();
            let hides = numbers.iter().flatten().filter(|v| **v < HIDES);
            let is_kept = hides.into_iter().all(|v| v / bias.factor < HIDDEN);
            if !is_kept {
                let why = "the bias and a mask enter as one value, and divided by the factor the mask \
                           would no longer hide keys";
                return Err(context.refuse(entry.node, why));
            }
            let key = (node.scope(), value);
            let divided = match self.0.get(&key) {
                Some(divided) => *divided,
                None => {
                    out.set_scope(node.scope());
                    let factor = out.scalar("factor", context.dtype(value), bias.factor);
                    let divided = out.op("Div", &[value, factor]);
                    self.0.insert(key, divided);
                    divided
                }
            };
            out.redirect_use(value, *entry, divided)?;
        }
        Ok(())
    }
}
