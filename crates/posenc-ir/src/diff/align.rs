//! One model with the names and the order of the other.

use std::collections::{BTreeMap, BTreeSet};

use super::compare::{functions, key};
use super::types::Diff;
use crate::graph::{Def, Graph, ScopeKind};
use crate::id::{NodeId, ScopeId, ValueId};
use crate::model::Model;

/// b with the names of a for common values, and with a's order of nodes and initializers. For
/// printing only: the source of the model does not match.
pub(super) fn align(diff: &Diff, a: &Model, b: &Model) -> Model {
    let mut out = b.clone();
    let order: BTreeMap<&String, usize> = a
        .metadata
        .iter()
        .enumerate()
        .map(|(i, (key, _))| (key, i))
        .collect();
    out.metadata
        .sort_by_key(|(key, _)| order.get(key).copied().unwrap_or(usize::MAX));
    let (of_a, of_b) = (a.graph(), b.graph());
    let aligned = Aligned {
        diff,
        a: of_a,
        b: of_b,
        bodies: bodies(diff, of_a, of_b).collect(),
    };
    aligned.rename(&mut out.graph);
    aligned.attributes(&mut out.graph);
    aligned.reorder(&mut out.graph);
    out
}

struct Aligned<'a> {
    diff: &'a Diff,
    a: &'a Graph,
    b: &'a Graph,
    /// Corresponding scopes: bodies of paired nodes, and functions.
    bodies: BTreeMap<ScopeId, ScopeId>,
}

impl Aligned<'_> {
    fn rename(&self, out: &mut Graph) {
        let taken: BTreeSet<&str> = self.a.values().map(|v| self.a.name(v)).collect();
        let mut named = BTreeMap::new();
        for value in self.a.values() {
            if let Some(partner) = self.partner(value) {
                named.insert(partner, self.a.value(value).name.clone());
            }
        }
        for value in self.b.values() {
            let v = &mut out.values[value.index()];
            match named.get(&value) {
                Some(name) => v.name = name.clone(),
                None if v.is_output || self.is_input(value) => {}
                // In a, another value has this name.
                None if taken.contains(&*v.name) => v.name = format!("{}'", v.name).into(),
                None => {}
            }
        }
        for (scope, partner) in &self.bodies {
            out.scopes[partner.index()].name = self.a.scope(*scope).name.clone();
        }
        // The name of the graph does not count.
        out.scopes[0].name = self.a.scope(self.a.main()).name.clone();
    }

    fn is_input(&self, value: ValueId) -> bool {
        let v = self.b.value(value);
        v.scope() == self.b.main() && matches!(v.def(), Def::Input(_))
    }

    /// The value of b that corresponds to a value of a; `None` for inputs and outputs, whose names
    /// count.
    fn partner(&self, value: ValueId) -> Option<ValueId> {
        if let Some(partner) = self.diff.initial.get(&value) {
            return Some(*partner);
        }
        let v = self.a.value(value);
        match v.def() {
            Def::Node(node, i) => {
                let partner = self.diff.pairs.partner(0, node)?;
                let value = self.b.node(partner).output(i as usize)?;
                let is_port = |g: &Graph, v: ValueId| g.scope(g.main()).outputs().contains(&v);
                (!is_port(self.b, value)).then_some(value)
            }
            Def::Input(i) => {
                let scope = self.bodies.get(&v.scope())?;
                self.b.scope(*scope).inputs().get(i as usize).copied()
            }
            Def::Initializer => None,
        }
    }

    /// Gives the attributes of paired nodes one order.
    fn attributes(&self, out: &mut Graph) {
        for (id, _) in self.b.nodes() {
            let Some(partner) = self.diff.pairs.partner(1, id) else {
                continue;
            };
            let order = self.a.node(partner).attributes();
            let own = self.b.node(id).attributes();
            let place = |i: &usize| {
                let name = own[*i].name();
                order.iter().position(|a| a.name() == name)
            };
            let mut sorted: Vec<usize> = (0..own.len()).collect();
            sorted.sort_by_key(|i| place(i).unwrap_or(usize::MAX));
            if sorted.is_sorted() {
                continue;
            }
            let extra = out.nodes[id.index()].extra_mut();
            extra.attributes = sorted.iter().map(|i| own[*i].clone()).collect();
            for (index, _) in &mut extra.bodies {
                *index = sorted.iter().position(|i| i == index).unwrap_or(*index);
            }
            extra.bodies.sort_by_key(|(index, _)| *index);
        }
    }

    /// Sorts the nodes of b like their partners; nodes without one are before their first reader.
    fn reorder(&self, out: &mut Graph) {
        let mut place = vec![usize::MAX; self.a.node_count()];
        for scope in self.a.scopes() {
            for (i, node) in self.a.scope(scope).nodes().iter().enumerate() {
                place[node.index()] = i;
            }
        }
        let mut key = vec![usize::MAX; self.b.node_count()];
        let order = self.initial_order();
        for scope in self.b.scopes() {
            let nodes = self.b.order(scope).unwrap_or_default();
            for node in nodes.iter().rev() {
                let partner = self.diff.pairs.partner(1, *node);
                let own = partner.map(|n| place[n.index()]);
                key[node.index()] = own.unwrap_or_else(|| self.first_reader(*node, &key));
            }
            let mut sorted = nodes;
            let lone = |n: &NodeId| self.diff.pairs.partner(1, *n).is_none();
            // Nodes without a partner are first, in topological order.
            sorted.sort_by_key(|n| (key[n.index()], !lone(n)));
            out.scopes[scope.index()].nodes = sorted;
            let initializers = &mut out.scopes[scope.index()].initializers;
            initializers.sort_by_key(|v| order.get(v).copied().unwrap_or(usize::MAX));
        }
    }

    fn first_reader(&self, node: NodeId, key: &[usize]) -> usize {
        let scope = self.b.node(node).scope();
        let outputs = self.b.node(node).outputs().iter().flatten();
        let readers = outputs.flat_map(|v| self.b.uses(*v)).map(|at| {
            // A reader in a body counts as the node of the body.
            let mut reader = at.node;
            while self.b.node(reader).scope() != scope {
                match self.b.scope(self.b.node(reader).scope()).kind() {
                    ScopeKind::Body(owner, _) => reader = *owner,
                    ScopeKind::Main | ScopeKind::Function { .. } => break,
                }
            }
            key[reader.index()]
        });
        readers.min().unwrap_or(usize::MAX)
    }

    fn initial_order(&self) -> BTreeMap<ValueId, usize> {
        let scopes = self.a.scopes().flat_map(|s| self.a.scope(s).initializers());
        let partners = scopes.enumerate().filter_map(|(i, v)| {
            let partner = self.diff.initial.get(v)?;
            Some((*partner, i))
        });
        partners.collect()
    }
}

/// The scopes of a with the corresponding ones of b.
fn bodies<'a>(
    diff: &'a Diff,
    a: &'a Graph,
    b: &'a Graph,
) -> impl Iterator<Item = (ScopeId, ScopeId)> {
    let functions: BTreeMap<_, ScopeId> = functions(b).collect();
    let partner = move |scope: ScopeId| match a.scope(scope).kind() {
        ScopeKind::Main => None,
        ScopeKind::Function { .. } => functions.get(&key(a, scope)?).copied(),
        ScopeKind::Body(owner, attribute) => {
            let partner = diff.pairs.partner(0, *owner)?;
            let mut bodies = b.node(partner).bodies();
            let found = bodies.find(|(name, _)| *name == &**attribute);
            found.map(|(_, partner)| partner)
        }
    };
    a.scopes()
        .filter_map(move |scope| Some((scope, partner(scope)?)))
}
