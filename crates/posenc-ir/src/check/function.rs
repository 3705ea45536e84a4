//! Functions: each defined once, none calls itself, and none unfolds without bound.

use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::graph::{Graph, ScopeKind};
use crate::id::ScopeId;

/// Nodes that a graph may have with all calls unfolded.
const MAX_UNFOLDED: u64 = 1 << 24;

/// Domain, name and overload.
type Key<'g> = (&'g str, &'g str, &'g str);

pub(super) fn check(graph: &Graph) -> Result<()> {
    let mut functions: FxHashMap<Key<'_>, ScopeId> = FxHashMap::default();
    for id in graph.scopes() {
        let scope = graph.scope(id);
        if let ScopeKind::Function { domain, overload } = scope.kind() {
            let domain = if &**domain == "ai.onnx" { "" } else { domain };
            if functions
                .insert((domain, scope.name(), overload), id)
                .is_some()
            {
                return Err(Error::invalid("the function is defined twice").at(scope.name()));
            }
        }
    }
    if functions.is_empty() {
        return Ok(());
    }
    // Callees before callers, without recursion: chains of calls may be long. A scope without a
    // size waits for what it calls.
    let mut sizes: FxHashMap<ScopeId, Option<u64>> = FxHashMap::default();
    let mut stack: Vec<ScopeId> = graph.scopes().filter(|s| is_root(graph, *s)).collect();
    while let Some(scope) = stack.last().copied() {
        if matches!(sizes.get(&scope), Some(Some(_))) {
            stack.pop();
            continue;
        }
        sizes.insert(scope, None);
        let waiting = stack.len();
        let mut size = 0u64;
        for callee in calls(graph, scope, &functions) {
            let Some(callee) = callee else {
                size = size.saturating_add(1);
                continue;
            };
            match sizes.get(&callee) {
                Some(Some(n)) => size = size.saturating_add(*n),
                Some(None) => {
                    let name = graph.scope(callee).name();
                    return Err(Error::invalid("the function calls itself").at(name));
                }
                None => stack.push(callee),
            }
        }
        if stack.len() > waiting {
            continue;
        }
        if size > MAX_UNFOLDED {
            let name = graph.scope(scope).name();
            let why = format!("its calls unfold into more than {MAX_UNFOLDED} nodes");
            return Err(Error::unsupported(why).at(name));
        }
        sizes.insert(scope, Some(size));
        stack.pop();
    }
    Ok(())
}

fn is_root(graph: &Graph, scope: ScopeId) -> bool {
    !matches!(graph.scope(scope).kind(), ScopeKind::Body(..))
}

/// For every node of the scope and of the bodies in it: the function that it calls, if any.
fn calls(
    graph: &Graph,
    scope: ScopeId,
    functions: &FxHashMap<Key<'_>, ScopeId>,
) -> Vec<Option<ScopeId>> {
    let mut out = vec![];
    let mut stack = vec![scope];
    while let Some(scope) = stack.pop() {
        for id in graph.scope(scope).nodes() {
            let node = graph.node(*id);
            let key = (node.domain(), node.op(), graph.overload(*id));
            out.push(functions.get(&key).copied());
            stack.extend(node.bodies().map(|(_, body)| body));
        }
    }
    out
}
