//! Functions: each is defined once, does not call itself and expands to a bounded size; calls have
//! the inputs that their function needs.

use rustc_hash::FxHashMap;

use super::imports::Imports;
use super::operator;
use crate::error::{Error, Result};
use crate::graph::{Graph, ScopeKind};
use crate::id::{NodeId, ScopeId};
use crate::inline;

/// Domain, name and overload.
type Key<'g> = (&'g str, &'g str, &'g str);

/// The functions of a model.
pub(super) struct Functions<'g> {
    graph: &'g Graph,
    by_key: FxHashMap<Key<'g>, ScopeId>,
}

/// The size of a scope with all calls expanded.
#[derive(Clone, Copy, Default)]
struct Size {
    /// Nodes of expanded calls.
    expanded: u64,
    /// All nodes.
    nodes: u64,
    /// Bytes of the nodes of expanded calls.
    expanded_bytes: u64,
    /// Bytes of all nodes.
    bytes: u64,
    /// How deep its bodies are nested.
    depth: u64,
}

/// A node of a scope or of a body in it.
struct Member {
    /// The number of bodies around it.
    depth: u64,
    /// Bytes in the file; 0 where those of a body include them.
    bytes: u64,
    /// The function that it calls, if any.
    callee: Option<ScopeId>,
}

impl<'g> Functions<'g> {
    /// The functions of the model; an error where one is defined twice.
    pub(super) fn of(graph: &'g Graph) -> Result<Self> {
        let mut by_key: FxHashMap<Key<'_>, ScopeId> = FxHashMap::default();
        for id in graph.scopes() {
            let scope = graph.scope(id);
            if let ScopeKind::Function { domain, overload } = scope.kind() {
                let domain = if &**domain == "ai.onnx" { "" } else { domain };
                let key = (domain, scope.name(), &**overload);
                if by_key.insert(key, id).is_some() {
                    return Err(Error::invalid("the function is defined twice").at(scope.name()));
                }
            }
        }
        Ok(Self { graph, by_key })
    }

    /// The function that a node calls.
    pub(super) fn callee(&self, id: NodeId) -> Option<ScopeId> {
        if self.by_key.is_empty() {
            return None;
        }
        let node = self.graph.node(id);
        let key = (node.domain(), node.op(), self.graph.overload(id));
        self.by_key.get(&key).copied()
    }

    /// Whether calls end, and expand to a size within the limits.
    pub(super) fn check_size(&self) -> Result<()> {
        if self.by_key.is_empty() {
            return Ok(());
        }
        let graph = self.graph;
        // Callees before callers, without recursion: chains of calls may be long. A scope with `None`
        // is waiting for its callees.
        let mut sizes: FxHashMap<ScopeId, Option<Size>> = FxHashMap::default();
        let is_root = |s: &ScopeId| !matches!(graph.scope(*s).kind(), ScopeKind::Body(..));
        let mut stack: Vec<ScopeId> = graph.scopes().filter(is_root).collect();
        while let Some(scope) = stack.last().copied() {
            if matches!(sizes.get(&scope), Some(Some(_))) {
                stack.pop();
                continue;
            }
            sizes.insert(scope, None);
            let waiting = stack.len();
            let mut size = Size::default();
            for member in self.members(scope) {
                size.depth = size.depth.max(member.depth);
                let Some(callee) = member.callee else {
                    size.nodes = size.nodes.saturating_add(1);
                    size.bytes = size.bytes.saturating_add(member.bytes);
                    continue;
                };
                match sizes.get(&callee) {
                    Some(Some(inner)) => {
                        size.nodes = size.nodes.saturating_add(inner.nodes);
                        size.expanded = size.expanded.saturating_add(inner.nodes);
                        size.bytes = size.bytes.saturating_add(inner.bytes);
                        size.expanded_bytes = size.expanded_bytes.saturating_add(inner.bytes);
                        let depth = member.depth.saturating_add(inner.depth);
                        size.depth = size.depth.max(depth);
                    }
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
            let too_much = [
                (size.expanded, inline::MAX_NODES, "nodes"),
                (size.expanded_bytes, inline::MAX_BYTES, "bytes"),
                (size.depth, inline::MAX_DEPTH, "nested bodies"),
            ];
            if let Some((_, most, what)) = too_much.into_iter().find(|(n, most, _)| n > most) {
                let why = format!("its calls expand to more than {most} {what}");
                return Err(Error::unsupported(why).at(graph.scope(scope).name()));
            }
            sizes.insert(scope, Some(size));
            stack.pop();
        }
        Ok(())
    }

    /// The nodes of the scope and of the bodies in it.
    fn members(&self, scope: ScopeId) -> Vec<Member> {
        let mut out = vec![];
        let mut stack = vec![(scope, 0)];
        while let Some((scope, depth)) = stack.pop() {
            for id in self.graph.scope(scope).nodes() {
                let node = self.graph.node(*id);
                let span = self.graph.source(*id).filter(|_| depth == 0);
                out.push(Member {
                    depth,
                    bytes: span.map_or(0, |at| at.len() as u64),
                    callee: self.callee(*id),
                });
                stack.extend(node.bodies().map(|(_, body)| (body, depth + 1)));
            }
        }
        out
    }

    /// Whether calls have the inputs that their function needs, and no more inputs or outputs than it.
    pub(super) fn check_calls(&self, imports: &Imports) -> Result<()> {
        if self.by_key.is_empty() {
            return Ok(());
        }
        let graph = self.graph;
        let mut needed: FxHashMap<ScopeId, Vec<bool>> = FxHashMap::default();
        for (id, node) in graph.nodes() {
            let Some(callee) = self.callee(id) else {
                continue;
            };
            let function = graph.scope(callee);
            let name = function.name();
            let at = |why: String| Err(Error::invalid(why).at(graph.place(id)));
            let sides = [
                (function.inputs(), node.inputs(), "input"),
                (function.outputs(), node.outputs(), "output"),
            ];
            for (has, given, what) in sides {
                if given.iter().skip(has.len()).any(Option::is_some) {
                    let (most, got) = (has.len(), given.len());
                    let s = if most == 1 { "" } else { "s" };
                    return at(format!(
                        "{name} has {most} {what}{s}, but the call has {got}"
                    ));
                }
            }
            let is_whole = (0..function.inputs().len()).all(|i| node.input(i).is_some());
            if is_whole {
                continue;
            }
            let needed = needed
                .entry(callee)
                .or_insert_with(|| self.needs(callee, imports));
            let missing = (0..needed.len()).find(|i| needed[*i] && node.input(*i).is_none());
            if let Some(i) = missing {
                return at(format!("required input {i} of {name} is omitted"));
            }
        }
        Ok(())
    }

    /// Which inputs of a function are required by an operator in it.
    fn needs(&self, function: ScopeId, imports: &Imports) -> Vec<bool> {
        let graph = self.graph;
        let inputs = graph.scope(function).inputs().iter();
        let needed = inputs.map(|input| {
            graph.uses(*input).iter().any(|at| {
                let is_call = self.callee(at.node).is_some();
                !is_call && operator::requires(imports, graph.node(at.node), at.slot())
            })
        });
        needed.collect()
    }
}
