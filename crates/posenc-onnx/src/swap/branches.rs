//! Bodies of control flow: what stands in one serves more than one site, or is one of several
//! ways, as in decoders that were merged from one with and one without a cache.

use posenc_ir::{Graph, Model, NodeId, ScopeId, ScopeKind};
use rustc_hash::FxHashSet;

use crate::detect::{Detection, Options, detect};
use crate::rewrite::RewriteError;
use crate::swap::Ground;

/// Branches of an `If` that hold attention are few.
const MOST: usize = 8;

/// How to detect the branches beside those that count, and the attention that is found then.
pub(super) fn others(
    model: &Model,
    before: &Detection,
    options: &Options,
) -> Vec<(Options, Vec<NodeId>)> {
    let graph = model.graph();
    let ifs = graph.nodes().filter(|(_, n)| n.is("If"));
    let branching = ifs.map(|(_, node)| {
        let bodies = node.bodies().map(|b| b.1);
        let known = FxHashSet::default();
        bodies
            .filter(|body| attention(graph, vec![*body], &known).is_some())
            .count()
    });
    let most = branching.max().unwrap_or(0).min(MOST);
    let mut known: FxHashSet<NodeId> = before.attention.iter().map(|s| s.node).collect();
    let mut others = vec![];
    for branch in options.branch + 1..most {
        let options = Options {
            branch,
            ..options.clone()
        };
        let found = detect(model, &options);
        let nodes = found.attention.iter().map(|s| s.node);
        let nodes: Vec<NodeId> = nodes.filter(|id| known.insert(*id)).collect();
        if !nodes.is_empty() {
            others.push((options, nodes));
        }
    }
    others
}

/// Refuses sites that cannot be changed alone, or not in every branch; the attention of `beside`
/// is changed for itself.
///
/// # Errors
/// Where a body computes other layers too, and where attention in another branch was not found.
pub(super) fn check(
    ground: &Ground<'_>,
    sites: &[usize],
    beside: &[NodeId],
) -> Result<(), RewriteError> {
    let graph = ground.graph();
    let all = ground.found.attention.iter().enumerate();
    let (chosen, rest): (Vec<_>, Vec<_>) = all.partition(|(i, _)| sites.contains(i));
    let nodes: FxHashSet<NodeId> = chosen.iter().map(|(_, site)| site.node).collect();
    if let Some((_, site)) = rest.iter().find(|(_, site)| nodes.contains(&site.node)) {
        let why = "a body computes this layer and others, and only some of them are asked for";
        return Err(ground.refuse(site.node, why));
    }
    let mut known: FxHashSet<NodeId> = ground.found.attention.iter().map(|s| s.node).collect();
    known.extend(beside);
    let mut scopes: Vec<ScopeId> = chosen.iter().map(|(_, site)| site.scope).collect();
    scopes.dedup();
    for mut scope in scopes {
        while let ScopeKind::Body(holder, _) = graph.scope(scope).kind() {
            let node = graph.node(*holder);
            let others = node.bodies().map(|b| b.1).filter(|body| *body != scope);
            let others: Vec<ScopeId> = others.filter(|_| node.is("If")).collect();
            if let Some(id) = attention(graph, others, &known) {
                let why = "attention in this branch could not be read, and would keep its encoding";
                return Err(ground.refuse(id, why));
            }
            scope = node.scope();
        }
    }
    Ok(())
}

/// A softmax or fused attention in these bodies that is no known site.
fn attention(graph: &Graph, bodies: Vec<ScopeId>, known: &FxHashSet<NodeId>) -> Option<NodeId> {
    let mut stack = bodies;
    while let Some(body) = stack.pop() {
        for id in graph.scope(body).nodes() {
            let node = graph.node(*id);
            let attends = node.is("Softmax") || node.op().ends_with("Attention");
            if attends && !known.contains(id) {
                return Some(*id);
            }
            stack.extend(node.bodies().map(|b| b.1));
        }
    }
    None
}
