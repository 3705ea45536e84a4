//! Replacing the encodings of one branch.
//!
//! Removing and inserting are a patch each, so that the second one is made for a graph without
//! any encoding. What the second needs of the first (positions that skip padding) is kept by a node
//! in between.

use posenc_ir::Model;

use crate::attention::stream::around;
use crate::detect::branches::Branch;
use crate::detect::context::Context;
use crate::detect::{Found, detect};
use crate::edit::{insert, remove};
use crate::error::RewriteError;
use crate::plan::change::swap_plan;
use crate::plan::swap::spec::EncodingSpec;
use crate::plan::swap::{Group, SwapPlan};
use crate::prove::invariants::{check_removed, check_same_sites};
use crate::prove::readback;
use crate::prove::swap::Proof;
use crate::prove::tokens;
use crate::prove::types;
use crate::record::swap::BranchRecord;
use crate::request::Request;
use crate::rewrite::revealed::{Revealed, with_revealed};

use super::caches::check_caches;
use super::learned::{self, Graphs};

/// The step after which attention is checked, for messages.
const INSERTED: &str = "after inserting the encoding";

/// A model whose encoding was replaced.
#[derive(Debug)]
pub(crate) struct Swapped {
    /// The model.
    pub(crate) model: Model,
    /// What is found in the model.
    pub(crate) found: Found,
    /// What was inserted where.
    pub(crate) plan: SwapPlan,
    /// What shows that it computes its formula.
    pub(crate) proof: Proof,
    /// How many nodes were added and removed.
    pub(crate) nodes: [usize; 2],
    /// Constants of the model that were extended.
    pub(crate) extended: usize,
    /// What the record says of it, branch by branch.
    pub(crate) records: Vec<BranchRecord>,
}

/// Replaces the encodings of all branches, one after another; returns the first branch that was
/// changed, with all that was changed.
///
/// # Errors
/// When an edit is not supported, or the result does not match the plan; the site is named.
pub(crate) fn swap_branches(
    model: &Model,
    branches: &[Branch],
    plans: Vec<Option<SwapPlan>>,
    request: &Request,
) -> Result<(usize, Swapped), RewriteError> {
    let mut done: Option<(usize, Swapped)> = None;
    for (i, (branch, planned)) in branches.iter().zip(plans).enumerate() {
        done = match done {
            None => match planned {
                Some(planned) => Some((i, swap_branch(model, branch, planned)?)),
                None => None,
            },
            // The branches before this one may have changed what it reads.
            Some((lead, before)) => {
                let at = &before.model;
                let again = Branch {
                    options: branch.options.clone(),
                    found: detect(at, &branch.options),
                };
                let planned = swap_plan(at, &again, branches, request)?;
                let more = planned.map(|planned| swap_branch(at, &again, planned));
                Some(match more.transpose()? {
                    Some(more) => (lead, before.and(more)),
                    None => (lead, before),
                })
            }
        };
    }
    let (lead, mut done) = done.expect("a change has a replacement");
    if !done.proof.other_branches.is_empty() {
        done.found = detect(&done.model, &branches[lead].options);
    }
    Ok((lead, done))
}

impl Swapped {
    /// This, and what was changed in a later branch.
    fn and(mut self, more: Self) -> Self {
        self.proof.other_branches.push(more.proof);
        self.records.extend(more.records);
        Self {
            model: more.model,
            nodes: [0, 1].map(|i| self.nodes[i] + more.nodes[i]),
            extended: self.extended + more.extended,
            ..self
        }
    }
}

/// Refuses a new encoding of the embeddings where content goes around the place of the old one: the new
/// one is added where the stream begins, and would act there too.
fn check_forks(before: &Context<'_>, plan: &SwapPlan) -> Result<(), RewriteError> {
    let (graph, found) = (before.graph(), before.found);
    let is_input = |group: &&Group| matches!(group.new, EncodingSpec::InputTerm(_));
    for site in plan.groups.iter().filter(is_input).flat_map(|g| &g.sites) {
        let own = found.findings.iter().filter(|f| f.sites.contains(site));
        for entry in own
            .filter(|f| f.encoding.is_absolute())
            .flat_map(|f| &f.entries)
        {
            if let Some(node) = around(graph, &found.classes, *entry) {
                let why = "this reads the content from before the old encoding, and the new one would \
                           act here too";
                return Err(before.refuse(node, why));
            }
        }
    }
    Ok(())
}

/// Replaces the encodings of one branch.
fn swap_branch(model: &Model, branch: &Branch, plan: SwapPlan) -> Result<Swapped, RewriteError> {
    let options = &branch.options;
    let context = Context {
        model,
        found: &branch.found,
    };
    let mut out = model.graph().emitter(model.graph().main(), "posenc");
    remove::remove(&mut out, &context, &plan)?;
    let kept = insert::preserve(&mut out, &context, &plan)?;
    let (bare, mut removed) = model.clone().with_patch(out.finish())?;
    let found = detect(&bare, options);
    let before = context;
    let context = Context {
        model: &bare,
        found: &found,
    };
    check_removed(&context, &branch.found, &plan)?;
    tokens::check(&before, &context, &plan)?;
    check_forks(&before, &plan)?;
    check_caches(&before, &plan)?;
    // Before the new encoding is inserted, so that both graphs of the proof run at the new lengths.
    let Revealed {
        model: bare,
        found,
        extended,
    } = match plan.max_length {
        Some(wanted) => with_revealed(bare, found, options, wanted, &mut removed)?,
        None => Revealed::of(bare, found),
    };
    let context = Context {
        model: &bare,
        found: &found,
    };
    let axes = insert::Axes::new(&context);
    let insert = |plan: &SwapPlan| -> Result<_, RewriteError> {
        let mut out = bare.graph().emitter(bare.graph().main(), "posenc");
        insert::insert(&mut out, &axes, plan, kept.clone())?;
        let (next, inserted) = bare.clone().with_patch(out.finish())?;
        let found = detect(&next, options);
        Ok(((next, found), inserted))
    };
    let ((next, after), inserted) = insert(&plan)?;
    let last = Context {
        model: &next,
        found: &after,
    };
    types::check(&last, &inserted)?;
    check_same_sites(&last, &found, INSERTED)?;
    // Zeros prove nothing: random numbers take their place.
    let random = plan.with_random_values();
    let (swapped, proven) = if random == plan.groups {
        ((next.clone(), after.clone()), inserted.clone())
    } else {
        insert(&plan.with(random.clone()))?
    };
    let proof = Proof {
        plan: plan.with(random),
        bare: (bare.clone(), found.clone()),
        swapped,
        other_branches: vec![],
    };
    let context = Context {
        model: &proof.swapped.0,
        found: &proof.swapped.1,
    };
    check_same_sites(&context, &proof.bare.1, INSERTED)?;
    readback::check(&context, &proof)?;
    let graphs = Graphs {
        next: &next,
        inserted: &inserted,
        proven: &proven,
    };
    let record = learned::record(options.branch, &proof, &graphs);
    Ok(Swapped {
        records: vec![record],
        model: next,
        found: after,
        proof,
        extended,
        nodes: [
            removed.added.len() + inserted.added.len(),
            removed.removed.len() + inserted.removed.len(),
        ],
        plan,
    })
}

/// Replaces the encodings of a model that was detected already; `None` where it has the requested
/// ones.
#[cfg(test)]
pub(crate) fn swap(
    model: &Model,
    before: &Found,
    request: &Request,
    options: &crate::detect::Options,
) -> Result<Option<Swapped>, RewriteError> {
    let branch = Branch {
        options: options.clone(),
        found: before.clone(),
    };
    let planned = swap_plan(model, &branch, std::slice::from_ref(&branch), request)?;
    let planned = planned.map(|planned| swap_branch(model, &branch, planned));
    planned.transpose()
}
