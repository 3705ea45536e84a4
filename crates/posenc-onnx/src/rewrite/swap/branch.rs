//! Swapping: what encodes position is taken out, what was asked for is put in, and the result is
//! read anew.
//!
//! Taking out and putting in are a patch each, so that the second one is made for a graph without
//! any encoding: it takes hold of queries, keys, scores and embeddings as they are then. What the
//! second needs of the first (positions that heed padding) is held by a node in between.

#[cfg(test)]
mod tests;

use posenc_ir::{Model, NodeId};

use crate::detect::{Found, Options, detect};
use crate::error::RewriteError;
use crate::request::Request;

use crate::detect::context::Context;
use crate::edit::{extend_buffers, insert, remove};
use crate::plan::swap::{SwapPlan, asked};
use crate::prove::swap::Proof;
use crate::prove::{invariants, readback};
use crate::rewrite::branches;

/// The step after which attention is checked, for messages.
const INSERTED: &str = "after inserting the encoding";

/// A model whose encoding was swapped.
#[derive(Debug)]
pub(crate) struct Swapped {
    /// The model.
    pub(crate) model: Model,
    /// The model, detected anew.
    pub(crate) found: Found,
    /// How the sites of `asked` were found, where the first branch already is as asked.
    pub(crate) branch: Option<(Found, Options)>,
    /// What was put in where.
    pub(crate) asked: SwapPlan,
    /// What shows that it computes what was asked for.
    pub(crate) proof: Proof,
    /// Nodes that came and went.
    pub(crate) nodes: [usize; 2],
    /// Constants of the model that were made longer.
    pub(crate) widened: usize,
}

/// Takes out what encodes position at the sites that are asked for, and puts in the new kind;
/// `None` where the model already is what was asked.
///
/// # Errors
/// When the request does not fit the model, a needed value is nowhere to be found, or a form is
/// not supported; the site is named.
pub(crate) fn swap(
    model: &Model,
    before: &Found,
    request: &Request,
    options: &Options,
) -> Result<Option<Swapped>, RewriteError> {
    let others = branches::others(model, before, options);
    let mut beside: Vec<NodeId> = before.attention.iter().map(|s| s.node).collect();
    beside.extend(others.iter().flat_map(|o| &o.1));
    let mut done = swap_branch(model, before, request, options, &beside)?;
    for (options, _) in others {
        let at = done.as_ref().map_or(model, |done| &done.model);
        let before = detect(at, &options);
        let Some(more) = swap_branch(at, &before, request, &options, &beside)? else {
            continue;
        };
        done = Some(match done {
            Some(done) => done.with(more),
            None => Swapped {
                branch: Some((before, options)),
                ..more
            },
        });
    }
    if let Some(done) = done
        .as_mut()
        .filter(|done| !done.proof.other_branches.is_empty())
    {
        let own = done.branch.as_ref().map_or(options, |branch| &branch.1);
        done.found = detect(&done.model, own);
    }
    Ok(done)
}

impl Swapped {
    /// This, and what was done to another branch of the model behind.
    fn with(mut self, more: Self) -> Self {
        let nodes = [0, 1].map(|i| self.nodes[i] + more.nodes[i]);
        self.proof.other_branches.push(more.proof);
        Self {
            model: more.model,
            nodes,
            widened: self.widened + more.widened,
            ..self
        }
    }
}

/// Swaps at the sites of one branch, where a model decides between several; `beside` is the
/// attention of all of them.
fn swap_branch(
    model: &Model,
    before: &Found,
    request: &Request,
    options: &Options,
    beside: &[NodeId],
) -> Result<Option<Swapped>, RewriteError> {
    let context = Context {
        model,
        found: before,
    };
    let Some(asked) = asked(&context, request)? else {
        return Ok(None);
    };
    branches::check(&context, &asked.sites, beside)?;
    let mut out = model.graph().emitter(model.graph().main(), "posenc");
    remove::remove(&mut out, &context, &asked)?;
    let kept = insert::preserve(&mut out, &context, &asked)?;
    let patch = out.finish();
    let (bare, gone) = model.clone().with_patch(patch)?;
    let found = detect(&bare, options);
    let context = Context {
        model: &bare,
        found: &found,
    };
    invariants::check_removed(&context, before, &asked)?;
    let axes = insert::Axes::new(&context);
    let put = |asked: &SwapPlan| -> Result<_, RewriteError> {
        let mut out = bare.graph().emitter(bare.graph().main(), "posenc");
        insert::insert(&mut out, &axes, asked, kept.clone())?;
        let widened = match asked.max_length {
            Some(wanted) => extend_buffers::extend_buffers(&mut out, &context, wanted)?,
            None => 0,
        };
        let (next, come) = bare.clone().with_patch(out.finish())?;
        Ok((next, come, widened))
    };
    let (next, come, widened) = put(&asked)?;
    let after = detect(&next, options);
    let last = Context {
        model: &next,
        found: &after,
    };
    invariants::check_same_sites(&last, &found, INSERTED)?;
    // Zeros prove nothing: other numbers stand in for them.
    let telling = asked.with_random_values();
    let done = match telling == asked.groups {
        true => (next.clone(), after.clone()),
        false => {
            let (model, ..) = put(&asked.with(telling.clone()))?;
            let found = detect(&model, options);
            (model, found)
        }
    };
    let proof = Proof {
        plan: asked.with(telling),
        bare: (bare.clone(), found.clone()),
        swapped: done,
        other_branches: vec![],
    };
    let context = Context {
        model: &proof.swapped.0,
        found: &proof.swapped.1,
    };
    invariants::check_same_sites(&context, &proof.bare.1, INSERTED)?;
    readback::check(&context, &proof)?;
    Ok(Some(Swapped {
        model: next,
        found: after,
        proof,
        widened,
        nodes: [
            gone.added.len() + come.added.len(),
            gone.removed.len() + come.removed.len(),
        ],
        branch: None,
        asked,
    }))
}
