//! The branches of an `If` that each contain attention, as in a decoder that was merged from one with
//! and one without a cache.

use posenc_ir::{Model, NodeId, ScopeId, ScopeKind};
use rustc_hash::FxHashSet;

use crate::detect::context::Context;
use crate::detect::{Found, Options, attention, detect};
use crate::error::RewriteError;
use crate::graph::bodies::attention_within;

/// The most branches of an `If` that are followed.
const MOST: usize = 8;

/// What was detected in one branch. A model that has no branches is its only one.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    /// How to detect it again.
    pub(crate) options: Options,
    /// What was found.
    pub(crate) found: Found,
}

/// Every branch that contains attention of its own, the one that `options` name first.
pub(crate) fn branches(model: &Model, options: &Options) -> Vec<Branch> {
    let found = detect(model, options);
    let others = other_branches(model, options, &found);
    let first = Branch {
        options: options.clone(),
        found,
    };
    std::iter::once(first).chain(others).collect()
}

/// The branches after the one that was found with these options.
pub(crate) fn other_branches(model: &Model, options: &Options, found: &Found) -> Vec<Branch> {
    let graph = model.graph();
    let ifs = graph.nodes().filter(|(_, n)| n.is("If"));
    let with_attention = ifs.map(|(_, node)| {
        let bodies = node.bodies().map(|b| b.1);
        let known = FxHashSet::default();
        bodies
            .filter(|body| attention_within(graph, vec![*body], &known).is_some())
            .count()
    });
    let most = with_attention.max().unwrap_or(0).min(MOST);
    let mut known: FxHashSet<NodeId> = found.attention.iter().map(|s| s.node).collect();
    let mut others = vec![];
    for branch in options.branch + 1..most {
        let options = Options {
            branch,
            ..options.clone()
        };
        let count = known.len();
        known.extend(attention(model, &options).iter().map(|s| s.node));
        if known.len() > count {
            let found = detect(model, &options);
            others.push(Branch { options, found });
        }
    }
    others
}

/// Refuses sites that cannot be changed alone, or not in every branch.
///
/// # Errors
/// Where a body computes other layers too, and where attention in another branch was not found.
pub(crate) fn check_branches(
    context: &Context<'_>,
    sites: &[usize],
    branches: &[Branch],
) -> Result<(), RewriteError> {
    let graph = context.graph();
    let all = context.found.attention.iter().enumerate();
    let (chosen, rest): (Vec<_>, Vec<_>) = all.partition(|(i, _)| sites.contains(i));
    let nodes: FxHashSet<NodeId> = chosen.iter().map(|(_, site)| site.node).collect();
    if let Some((_, site)) = rest.iter().find(|(_, site)| nodes.contains(&site.node)) {
        let why = "one body computes this layer and others, and the request names only some of \
                   them";
        return Err(context.refuse(site.node, why));
    }
    let all = branches.iter().map(|branch| &branch.found);
    let all = all.chain([context.found]).flat_map(|f| &f.attention);
    let known: FxHashSet<NodeId> = all.map(|site| site.node).collect();
    let mut scopes: Vec<ScopeId> = chosen.iter().map(|(_, site)| site.scope).collect();
    scopes.dedup();
    for mut scope in scopes {
        while let ScopeKind::Body(holder, _) = graph.scope(scope).kind() {
            let node = graph.node(*holder);
            let others = node.bodies().map(|b| b.1).filter(|body| *body != scope);
            let others: Vec<ScopeId> = others.filter(|_| node.is("If")).collect();
            if let Some(id) = attention_within(graph, others, &known) {
                let why = "another branch of this If has attention that was not recognized; it would \
                           keep the old encoding";
                return Err(context.refuse(id, why));
            }
            scope = node.scope();
        }
    }
    Ok(())
}
