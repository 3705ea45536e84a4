//! An edit as a value: owned, printable, applied whole or not at all.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Def, Dim, Graph, ScopeKind, Type, Use, Value};
use crate::id::{NodeId, ScopeId, ValueId, narrow};
use crate::node::{Extra, Node, Operator};
use crate::proto::AttributeProto;
use crate::stored::{Payload, Stored};
use crate::tensor::Tensor;

/// New nodes, new constants, redirected uses and new payloads, recorded by an
/// [`Emitter`](crate::Emitter) and applied by [`Model::commit`](crate::Model::commit).
#[derive(Clone, Debug)]
pub struct Patch {
    revision: u64,
    base: usize,
    values: Vec<Draft>,
    pub(crate) nodes: Vec<NewNode>,
    pub(crate) initializers: Vec<Init>,
    pub(crate) inputs: Vec<NewInput>,
    /// Values of the graph that go where nothing reads them.
    pub(crate) released: Vec<ValueId>,
    pub(crate) redirects: Vec<(Use, ValueId)>,
    pub(crate) outputs: Vec<(ValueId, ValueId)>,
    pub(crate) revalued: BTreeMap<ValueId, Tensor>,
}

/// A value that the patch adds.
#[derive(Clone, Debug)]
struct Draft {
    scope: ScopeId,
    name: String,
    kind: NewValue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewValue {
    Computed,
    Initial,
    Fed,
}

/// A node that the patch adds.
#[derive(Clone, Debug)]
pub(crate) struct NewNode {
    pub(crate) scope: ScopeId,
    pub(crate) name: String,
    pub(crate) domain: String,
    pub(crate) op: String,
    pub(crate) inputs: Vec<Option<ValueId>>,
    pub(crate) outputs: Vec<Option<ValueId>>,
    pub(crate) attributes: Vec<AttributeProto>,
}

/// An initializer that the patch adds.
#[derive(Clone, Debug)]
pub(crate) struct Init {
    pub(crate) scope: ScopeId,
    pub(crate) value: ValueId,
    pub(crate) tensor: Tensor,
}

/// An input that the patch adds to the main graph.
#[derive(Clone, Debug)]
pub(crate) struct NewInput {
    pub(crate) value: ValueId,
    pub(crate) dtype: DType,
    pub(crate) dims: Vec<Dim>,
}

/// What a commit did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// New nodes.
    pub added: Vec<NodeId>,
    /// Nodes that nothing needed any more.
    pub removed: Vec<NodeId>,
    /// Constants with a new payload, edited in place.
    pub revalued: Vec<ValueId>,
    /// New constants.
    pub constants: Vec<ValueId>,
}

impl Patch {
    pub(crate) fn new(graph: &Graph) -> Self {
        Self {
            revision: graph.revision,
            base: graph.values.len(),
            values: vec![],
            nodes: vec![],
            initializers: vec![],
            inputs: vec![],
            released: vec![],
            redirects: vec![],
            outputs: vec![],
            revalued: BTreeMap::new(),
        }
    }

    pub(crate) fn value(&mut self, scope: ScopeId, name: String, kind: NewValue) -> ValueId {
        let id = ValueId::from_index(self.base + self.values.len());
        self.values.push(Draft { scope, name, kind });
        id
    }

    /// Where a value of the patch stands.
    pub(crate) fn scope_of(&self, value: ValueId) -> ScopeId {
        let place = value.index() - self.base;
        self.values[place].scope
    }

    /// Whether the patch changes nothing.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
            && self.inputs.is_empty()
            && self.released.is_empty()
            && self.redirects.is_empty()
            && self.outputs.is_empty()
            && self.revalued.is_empty()
    }

    /// The name of a value of the graph or of the patch.
    pub fn name<'a>(&'a self, graph: &'a Graph, value: ValueId) -> &'a str {
        match value.index().checked_sub(self.base) {
            None => graph.name(value),
            Some(i) => &self.values[i].name,
        }
    }
}

impl Graph {
    /// See [`Model::committed`](crate::Model::committed): on an error the graph is of no use.
    pub(crate) fn commit(&mut self, patch: Patch) -> Result<Applied> {
        if patch.revision != self.revision || patch.base != self.values.len() {
            let why = "the patch was made for another state of the graph";
            return Err(Error::patch(why));
        }
        self.check_reads(&patch)?;
        self.apply(patch)
    }

    /// What the patch reads must be in the graph or the patch, where the reader can see it.
    fn check_reads(&self, patch: &Patch) -> Result<()> {
        let check = |value: ValueId, reader: ScopeId, place: &str| {
            let fault = |why: &str| Err(Error::patch(why.to_owned()).at(place));
            let scope = match value.index().checked_sub(self.values.len()) {
                Some(i) => match patch.values.get(i) {
                    Some(draft) => draft.scope,
                    None => return fault("the node reads a value of another patch"),
                },
                None if self.is_gone(value) => {
                    return fault("the node reads a value that is in the graph no more");
                }
                None => self.value(value).scope,
            };
            let mut at = Some(reader);
            while let Some(id) = at.filter(|id| *id != scope) {
                at = self.scope(id).parent;
            }
            match at {
                Some(_) => Ok(()),
                None => fault("the node reads a value of a body that it does not stand in"),
            }
        };
        for init in &patch.initializers {
            if matches!(self.scope(init.scope).kind, ScopeKind::Function { .. }) {
                let why = "a function holds no constants but those that its nodes compute";
                return Err(Error::patch(why).at(self.scope(init.scope).name.to_string()));
            }
        }
        for node in &patch.nodes {
            for value in node.inputs.iter().flatten() {
                check(*value, node.scope, &node.name)?;
            }
        }
        for (at, new) in &patch.redirects {
            check(*new, self.node(at.node).scope, &self.place(at.node))?;
        }
        for (old, new) in &patch.outputs {
            check(*new, self.value(*old).scope, self.name(*old))?;
        }
        Ok(())
    }

    /// Whether a commit has swept the value.
    pub(crate) fn is_gone(&self, value: ValueId) -> bool {
        match self.value(value).def {
            Def::Node(node, _) => self.removed.contains(&node),
            Def::Initializer => self.dropped.contains(&value),
            Def::Input(_) => false,
        }
    }

    fn apply(&mut self, patch: Patch) -> Result<Applied> {
        let mut applied = Applied::default();
        let before = self.nodes.len();
        for draft in patch.values {
            let id = ValueId::from_index(self.values.len());
            if draft.kind == NewValue::Initial {
                self.scope_mut(draft.scope).initializers.push(id);
                applied.constants.push(id);
            }
            let names = &mut self.scopes[draft.scope.index()].by_name;
            names.insert(&draft.name, id, &self.values);
            let value = Value::new(draft.name.into(), draft.scope, Def::Initializer);
            self.values.push(value);
        }
        for init in patch.initializers {
            self.value_mut(init.value).stored = Some(Box::new(Stored {
                dtype: Some(init.tensor.dtype()),
                dims: init.tensor.dims().to_vec(),
                payload: Payload::Raw(init.tensor.bytes().clone()),
            }));
        }
        let main = self.main();
        for input in patch.inputs {
            let place = narrow(self.scope(main).inputs.len());
            self.scope_mut(main).inputs.push(input.value);
            let value = self.value_mut(input.value);
            value.def = Def::Input(place);
            value.ty = Some(Box::new(Type::Tensor {
                dtype: Some(input.dtype),
                shape: Some(input.dims),
            }));
        }
        let mut touched = vec![];
        for new in patch.nodes {
            let id = NodeId::from_index(self.nodes.len());
            for (slot, value) in new.inputs.iter().enumerate() {
                if let Some(value) = value {
                    self.value_mut(*value).uses.push(Use::new(id, slot));
                }
            }
            for (i, value) in new.outputs.iter().enumerate() {
                if let Some(value) = value {
                    self.value_mut(*value).def = Def::Node(id, narrow(i));
                }
            }
            self.nodes.push(Node {
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
            // At the end until it is placed: a body that is swept takes its new nodes along.
            self.scope_mut(new.scope).nodes.push(id);
            touched.push(new.scope);
            applied.added.push(id);
        }
        let mut orphans = patch.released;
        // The last word on a use counts.
        let redirects: BTreeMap<Use, ValueId> = patch.redirects.into_iter().collect();
        for (at, new) in &redirects {
            let slot = &mut self.node_mut(at.node).inputs[at.slot()];
            orphans.extend(slot.replace(*new));
            self.edited.insert(at.node);
            touched.push(self.node(at.node).scope);
        }
        orphans.sort_unstable();
        orphans.dedup();
        for old in &orphans {
            let uses = &mut self.value_mut(*old).uses;
            uses.retain(|u| !redirects.contains_key(u));
        }
        for (at, new) in redirects {
            self.value_mut(new).uses.push(at);
        }
        let outputs: BTreeMap<ValueId, ValueId> = patch.outputs.into_iter().collect();
        for (old, new) in outputs.into_iter().filter(|(old, new)| old != new) {
            self.move_output(old, new)?;
            orphans.push(old);
            touched.push(self.value(new).scope);
        }
        for (value, tensor) in patch.revalued {
            if let Some(stored) = &mut self.value_mut(value).stored {
                let resized = stored.dims != tensor.dims();
                stored.dims = tensor.dims().to_vec();
                stored.payload = Payload::Raw(tensor.bytes().clone());
                if resized {
                    self.value_mut(value).ty = None;
                }
            }
            self.revalued.insert(value, tensor);
            applied.revalued.push(value);
        }
        applied.removed = self.sweep(orphans);
        touched.extend(applied.removed.iter().map(|n| self.node(*n).scope));
        // A new node may be read by nothing but what was swept.
        applied.added.retain(|n| !self.removed.contains(n));
        applied.constants.retain(|v| !self.dropped.contains(v));
        applied.removed.retain(|n| n.index() < before);
        if !self.dropped.is_empty() {
            let dropped = &self.dropped;
            for scope in &mut self.scopes {
                scope.initializers.retain(|v| !dropped.contains(v));
            }
        }
        touched.sort_unstable();
        touched.dedup();
        // What a body captures orders the nodes of the graphs around it.
        let mut i = 0;
        while let Some(scope) = touched.get(i).copied() {
            i += 1;
            touched.extend(self.scope(scope).parent.filter(|p| !touched.contains(p)));
        }
        touched.sort_unstable();
        touched.dedup();
        for scope in touched {
            self.place_new(scope, &applied.added, before)?;
        }
        self.revision += 1;
        Ok(applied)
    }

    /// Gives `new` the name and the place of the output `old`.
    fn move_output(&mut self, old: ValueId, new: ValueId) -> Result<()> {
        let scope = self.value(old).scope;
        let own = matches!(self.value(new).def, Def::Node(..))
            && matches!(self.value(old).def, Def::Node(..))
            && self.value(new).scope == scope
            && !self.value(new).is_output;
        if !own {
            let why = format!("output {} needs a value of its own", self.name(old));
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
        // A body may give out a value of the graph around it as it is.
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

    /// Removes what only the values in `orphans` kept alive.
    fn sweep(&mut self, mut orphans: Vec<ValueId>) -> Vec<NodeId> {
        let mut removed = vec![];
        // How many uses are left of the values that lost some.
        let mut left: BTreeMap<ValueId, usize> = BTreeMap::new();
        while let Some(value) = orphans.pop() {
            let v = self.value(value);
            let dead = |value: &ValueId| {
                let v = self.value(*value);
                left.get(value).map_or(v.uses.is_empty(), |n| *n == 0) && !v.is_output
            };
            if !dead(&value) {
                continue;
            }
            match v.def {
                Def::Input(_) => {}
                Def::Initializer => {
                    self.dropped.insert(value);
                }
                Def::Node(node, _) => {
                    if self.node(node).outputs.iter().flatten().all(dead)
                        && !self.removed.contains(&node)
                    {
                        self.remove(node, &mut left, &mut orphans);
                        removed.push(node);
                    }
                }
            }
        }
        for value in left.into_keys() {
            let uses = &mut self.values[value.index()].uses;
            uses.retain(|u| !self.removed.contains(&u.node));
        }
        removed
    }

    /// Takes a node's reads back, those of its bodies included.
    fn remove(
        &mut self,
        node: NodeId,
        left: &mut BTreeMap<ValueId, usize>,
        orphans: &mut Vec<ValueId>,
    ) {
        let mut stack = vec![node];
        while let Some(id) = stack.pop() {
            self.removed.insert(id);
            let node = &self.nodes[id.index()];
            for value in node.inputs.iter().flatten() {
                let uses = left
                    .entry(*value)
                    .or_insert_with(|| self.values[value.index()].uses.len());
                *uses = uses.saturating_sub(1);
                if *uses == 0 {
                    orphans.push(*value);
                }
            }
            for (_, body) in node.body_places() {
                stack.extend(self.scopes[body.index()].nodes.iter().copied());
            }
        }
    }

    /// Puts the new nodes of a scope just before their first reader, and drops the removed ones.
    fn place_new(&mut self, scope: ScopeId, added: &[NodeId], known: usize) -> Result<()> {
        let old: Vec<NodeId> = self.scope(scope).nodes.clone();
        let old: Vec<NodeId> = old
            .into_iter()
            .filter(|n| n.index() < known && !self.removed.contains(n))
            .collect();
        let place: FxHashMap<NodeId, usize> =
            old.iter().enumerate().map(|(i, n)| (*n, i)).collect();
        let mut before: FxHashMap<NodeId, usize> = FxHashMap::default();
        // Later nodes of a patch read earlier ones, so readers are placed before what they read.
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
        self.scope_mut(scope).nodes = list.into_iter().map(|(.., n)| n).collect();
        let sorted = self.order(scope)?;
        self.scope_mut(scope).nodes = sorted;
        Ok(())
    }

    /// The node of `scope` that is `node` or holds it in a body.
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

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;
