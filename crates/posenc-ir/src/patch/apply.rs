//! Applying a patch to a graph.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Applied, Draft, Init, NewInput, NewNode, NewValue, Patch};
use crate::error::{Error, Result};
use crate::graph::{Def, Dim, Graph, ScopeKind, Type, Use, Value};
use crate::id::{NodeId, ScopeId, ValueId, narrow};
use crate::node::{Extra, Node, Operator};
use crate::order::reads;
use crate::stored::{Payload, Stored};
use crate::tensor::Tensor;

impl Graph {
    /// Applies a patch; on an error the graph is in an undefined state.
    pub(crate) fn commit(&mut self, patch: Patch) -> Result<Applied> {
        if patch.revision != self.revision || patch.base != self.values.len() {
            let why = "the patch was recorded for another state of the graph";
            return Err(Error::patch(why));
        }
        self.check_reads(&patch)?;
        self.apply(patch)
    }

    fn apply(&mut self, patch: Patch) -> Result<Applied> {
        let mut commit = Commit {
            old_nodes: self.nodes.len(),
            graph: self,
            applied: Applied::default(),
            orphans: patch.released,
            touched: vec![],
        };
        commit.add_values(patch.values);
        commit.add_payloads(patch.initializers);
        commit.add_inputs(patch.inputs);
        commit.add_nodes(patch.nodes);
        commit.redirect(patch.redirects);
        commit.redirect_outputs(patch.outputs)?;
        commit.change_constants(patch.revalued);
        commit.redeclare(patch.redeclared);
        commit.sweep();
        commit.order_nodes()?;
        let applied = commit.applied;
        self.take_repeated_names();
        self.revision += 1;
        Ok(applied)
    }
}

/// A patch that is being applied.
struct Commit<'g> {
    graph: &'g mut Graph,
    applied: Applied,
    /// How many nodes the graph had before.
    old_nodes: usize,
    /// Values with fewer uses than before.
    orphans: Vec<ValueId>,
    /// Scopes whose nodes or captures changed.
    touched: Vec<ScopeId>,
}

impl Commit<'_> {
    fn add_values(&mut self, drafts: Vec<Draft>) {
        let graph = &mut *self.graph;
        for draft in drafts {
            let id = ValueId::from_index(graph.values.len());
            if draft.kind == NewValue::Initial {
                graph.scope_mut(draft.scope).initializers.push(id);
                self.applied.constants.push(id);
            }
            let names = &mut graph.scopes[draft.scope.index()].by_name;
            names.insert(&draft.name, id, &graph.values);
            let value = Value::new(draft.name.into(), draft.scope, Def::Initializer);
            graph.values.push(value);
        }
    }

    fn add_payloads(&mut self, initializers: Vec<Init>) {
        for init in initializers {
            self.graph.value_mut(init.value).stored = Some(Box::new(Stored {
                dtype: Some(init.tensor.dtype()),
                dims: init.tensor.dims().to_vec(),
                payload: Payload::Raw(init.tensor.bytes().clone()),
            }));
        }
    }

    fn add_inputs(&mut self, inputs: Vec<NewInput>) {
        let graph = &mut *self.graph;
        let main = graph.main();
        for input in inputs {
            let place = narrow(graph.scope(main).inputs.len());
            graph.scope_mut(main).inputs.push(input.value);
            let value = graph.value_mut(input.value);
            value.def = Def::Input(place);
            value.ty = Some(Box::new(Type::Tensor {
                dtype: Some(input.dtype),
                shape: Some(input.dims),
            }));
        }
    }

    fn add_nodes(&mut self, nodes: Vec<NewNode>) {
        let graph = &mut *self.graph;
        for new in nodes {
            let id = NodeId::from_index(graph.nodes.len());
            for (slot, value) in new.inputs.iter().enumerate() {
                if let Some(value) = value {
                    graph.value_mut(*value).uses.push(Use::new(id, slot));
                }
            }
            for (i, value) in new.outputs.iter().enumerate() {
                if let Some(value) = value {
                    graph.value_mut(*value).def = Def::Node(id, narrow(i));
                }
            }
            graph.nodes.push(Node {
                scope: new.scope,
                piece: None,
                name: new.name.into(),
                operator: Arc::new(Operator {
                    domain: new.domain.into(),
                    op: new.op.into(),
                }),
                inputs: new.inputs.into_iter().collect(),
                outputs: new.outputs.into_iter().collect(),
                extra: Some(Arc::new(Extra {
                    attributes: new.attributes.into(),
                    bodies: vec![],
                })),
            });
            // At the end until it is ordered: a body that is removed takes its new nodes along.
            graph.scope_mut(new.scope).nodes.push(id);
            self.touched.push(new.scope);
            self.applied.added.push(id);
        }
    }

    fn redirect(&mut self, redirects: Vec<(Use, ValueId)>) {
        let graph = &mut *self.graph;
        // Of several redirects of one use, the last one counts.
        let redirects: BTreeMap<Use, ValueId> = redirects.into_iter().collect();
        for (at, new) in &redirects {
            let slot = &mut graph.node_mut(at.node).inputs[at.slot()];
            self.orphans.extend(slot.replace(*new));
            graph.edited.insert(at.node);
            self.touched.push(graph.node(at.node).scope);
        }
        self.orphans.sort_unstable();
        self.orphans.dedup();
        for old in &self.orphans {
            let uses = &mut graph.value_mut(*old).uses;
            uses.retain(|u| !redirects.contains_key(u));
        }
        for (at, new) in redirects {
            graph.value_mut(new).uses.push(at);
        }
    }

    fn redirect_outputs(&mut self, outputs: Vec<(ValueId, ValueId)>) -> Result<()> {
        let outputs: BTreeMap<ValueId, ValueId> = outputs.into_iter().collect();
        for (old, new) in outputs.into_iter().filter(|(old, new)| old != new) {
            self.graph.move_output(old, new)?;
            self.orphans.push(old);
            self.touched.push(self.graph.value(new).scope);
        }
        Ok(())
    }

    fn change_constants(&mut self, revalued: BTreeMap<ValueId, Tensor>) {
        for (value, tensor) in revalued {
            let v = self.graph.value_mut(value);
            if let Some(stored) = &mut v.stored {
                let resized = stored.dims != tensor.dims();
                stored.dims = tensor.dims().to_vec();
                stored.payload = Payload::Raw(tensor.bytes().clone());
                if resized {
                    v.ty = None;
                }
            }
            self.graph.revalued.insert(value, tensor);
            self.applied.revalued.push(value);
        }
    }

    fn redeclare(&mut self, redeclared: BTreeMap<ValueId, Vec<Dim>>) {
        for (value, dims) in redeclared {
            let graph = &mut *self.graph;
            let v = &mut graph.values[value.index()];
            let is_port = v.is_output || matches!(v.def, Def::Input(_));
            match v.ty.as_deref_mut() {
                Some(Type::Tensor { shape, .. }) if is_port => {
                    *shape = Some(dims);
                    graph.redeclared.insert(value);
                }
                _ => v.ty = None,
            }
        }
    }

    /// Removes the nodes and initializers that nothing uses any more.
    fn sweep(&mut self) {
        let graph = &mut *self.graph;
        let applied = &mut self.applied;
        applied.removed = graph.sweep(std::mem::take(&mut self.orphans));
        let scopes = applied.removed.iter().map(|n| graph.node(*n).scope);
        self.touched.extend(scopes);
        // New nodes may be among them, where only removed nodes read their outputs.
        applied.added.retain(|n| !graph.removed.contains(n));
        applied.constants.retain(|v| !graph.dropped.contains(v));
        applied.removed.retain(|n| n.index() < self.old_nodes);
        if !graph.dropped.is_empty() {
            let dropped = &graph.dropped;
            for scope in &mut graph.scopes {
                scope.initializers.retain(|v| !dropped.contains(v));
            }
        }
    }

    /// Brings the nodes of the touched scopes, and of the scopes around them, into topological
    /// order: what a body captures orders the nodes around it.
    fn order_nodes(&mut self) -> Result<()> {
        let touched = &mut self.touched;
        touched.sort_unstable();
        touched.dedup();
        let mut i = 0;
        while let Some(scope) = touched.get(i).copied() {
            i += 1;
            let parent = self.graph.scope(scope).parent;
            touched.extend(parent.filter(|p| !touched.contains(p)));
        }
        touched.sort_unstable();
        touched.dedup();
        for scope in touched {
            let added = &self.applied.added;
            self.graph.place_new(*scope, added, self.old_nodes)?;
        }
        Ok(())
    }
}

impl Graph {
    /// Makes `new` the output that `old` was, with its name.
    fn move_output(&mut self, old: ValueId, new: ValueId) -> Result<()> {
        let scope = self.value(old).scope;
        let own = matches!(self.value(new).def, Def::Node(..))
            && matches!(self.value(old).def, Def::Node(..))
            && self.value(new).scope == scope
            && !self.value(new).is_output;
        if !own {
            let why = format!(
                "output {} can only be replaced by a new output of a node of its scope",
                self.name(old)
            );
            return Err(Error::patch(why));
        }
        let (a, b) = (self.value(old).name.clone(), self.value(new).name.clone());
        let names = &mut self.scopes[scope.index()].by_name;
        names.remove(old, &self.values);
        names.remove(new, &self.values);
        for (value, name) in [(old, b), (new, a)] {
            names.insert(&name, value, &self.values);
            self.values[value.index()].name = name;
        }
        // A body may return a value of the graph around it.
        let outputs = self.scopes.iter_mut().flat_map(|s| &mut s.outputs);
        for slot in outputs.filter(|slot| **slot == old) {
            *slot = new;
        }
        self.value_mut(old).is_output = false;
        self.value_mut(new).is_output = true;
        let ty = self.value(old).ty.clone();
        self.value_mut(new).ty = ty;
        for value in [old, new] {
            let readers = self.values[value.index()].uses.iter();
            self.edited.extend(readers.map(|u| u.node));
            if let Some((node, _)) = self.producer(value) {
                self.edited.insert(node);
            }
        }
        Ok(())
    }

    /// Places the new nodes of a scope before their first reader, and drops removed nodes.
    fn place_new(&mut self, scope: ScopeId, added: &[NodeId], known: usize) -> Result<()> {
        let old: Vec<NodeId> = self.scope(scope).nodes.clone();
        let old: Vec<NodeId> = old
            .into_iter()
            .filter(|n| n.index() < known && !self.removed.contains(n))
            .collect();
        let place: FxHashMap<NodeId, usize> =
            old.iter().enumerate().map(|(i, n)| (*n, i)).collect();
        let mut before: FxHashMap<NodeId, usize> = FxHashMap::default();
        // Later nodes of a patch read earlier ones, so that readers are placed first.
        for id in added.iter().rev().filter(|n| self.node(**n).scope == scope) {
            let readers = self.node(*id).outputs.iter().flatten();
            let first = readers
                .flat_map(|v| self.uses(*v))
                .filter_map(|u| {
                    let at = self.ancestor_in(u.node, scope)?;
                    place.get(&at).or_else(|| before.get(&at)).copied()
                })
                .min();
            before.insert(*id, first.unwrap_or(old.len()));
        }
        let mut list: Vec<(usize, usize, NodeId)> = vec![];
        list.extend(old.iter().enumerate().map(|(i, n)| (i, usize::MAX, *n)));
        for (k, id) in added.iter().enumerate() {
            if let Some(at) = before.get(id) {
                list.push((*at, k, *id));
            }
        }
        list.sort_unstable();
        let list = list.into_iter().map(|(.., n)| n);
        self.scope_mut(scope).set_nodes(list.collect());
        let sorted = self.order(scope).map_err(|error| {
            // Of the nodes of the model: a name that the patch made says nothing.
            let changed = |n: &&NodeId| {
                self.edited.contains(n) || !self.node(**n).indexed_bodies().is_empty()
            };
            let mut old = old.iter().filter(changed);
            let at = old.find(|n| self.reads_itself(**n, scope));
            match at {
                Some(at) => Error::patch(error.kind().to_string()).at(self.place(*at)),
                None => error,
            }
        })?;
        self.scope_mut(scope).set_nodes(sorted);
        Ok(())
    }

    /// Whether a node of a scope depends on its own output.
    fn reads_itself(&self, node: NodeId, scope: ScopeId) -> bool {
        let before = |id: NodeId| {
            let producers = reads(self, id).into_iter().filter_map(|v| self.producer(v));
            producers.filter_map(|(id, _)| self.ancestor_in(id, scope))
        };
        let mut stack: Vec<NodeId> = before(node).collect();
        let mut seen = FxHashSet::default();
        while let Some(id) = stack.pop() {
            if id == node {
                return true;
            }
            if seen.insert(id) {
                stack.extend(before(id));
            }
        }
        false
    }

    /// The node of `scope` that is `node` or contains it in a body.
    fn ancestor_in(&self, mut node: NodeId, scope: ScopeId) -> Option<NodeId> {
        loop {
            let at = self.node(node).scope;
            if at == scope {
                return Some(node);
            }
            match &self.scope(at).kind {
                ScopeKind::Body(holder, _) => node = *holder,
                _ => return None,
            }
        }
    }
}
