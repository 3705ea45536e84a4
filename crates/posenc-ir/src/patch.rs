//! An edit as a value: owned, printable, applied whole or not at all.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::graph::{Def, Graph, Use, Value};
use crate::id::{NodeId, ScopeId, ValueId};
use crate::node::Node;
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
}

/// A node that the patch adds.
#[derive(Clone, Debug)]
pub(crate) struct NewNode {
    pub(crate) scope: ScopeId,
    pub(crate) name: String,
    pub(crate) domain: String,
    pub(crate) op: String,
    pub(crate) inputs: Vec<Option<ValueId>>,
    pub(crate) outputs: Vec<ValueId>,
    pub(crate) attributes: Vec<AttributeProto>,
}

/// An initializer that the patch adds.
#[derive(Clone, Debug)]
pub(crate) struct Init {
    pub(crate) scope: ScopeId,
    pub(crate) value: ValueId,
    pub(crate) tensor: Tensor,
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

    /// Whether the patch changes nothing.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
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
    /// See [`Model::commit`](crate::Model::commit).
    pub(crate) fn commit(&mut self, patch: Patch) -> Result<Applied> {
        if patch.revision != self.revision || patch.base != self.values.len() {
            let why = "the patch was made for another state of the graph";
            return Err(Error::patch(why));
        }
        // The graph is small beside the weights, which a clone shares.
        let mut next = self.clone();
        let applied = next.apply(patch)?;
        *self = next;
        Ok(applied)
    }

    fn apply(&mut self, patch: Patch) -> Result<Applied> {
        let mut applied = Applied::default();
        for draft in patch.values {
            let id = ValueId::from_index(self.values.len());
            let name: Box<str> = draft.name.into();
            self.names.insert(name.clone());
            self.scope_mut(draft.scope).by_name.insert(name.clone(), id);
            if draft.kind == NewValue::Initial {
                self.scope_mut(draft.scope).initializers.push(id);
                applied.constants.push(id);
            }
            self.values.push(Value {
                name,
                scope: draft.scope,
                def: Def::Initializer,
                ty: None,
                stored: None,
                uses: vec![],
                is_output: false,
            });
        }
        for init in patch.initializers {
            self.value_mut(init.value).stored = Some(Box::new(Stored {
                dtype: Some(init.tensor.dtype()),
                dims: init.tensor.dims().to_vec(),
                payload: Payload::Raw(init.tensor.bytes().clone()),
            }));
        }
        let mut touched = vec![];
        for new in patch.nodes {
            let id = NodeId::from_index(self.nodes.len());
            for (slot, value) in new.inputs.iter().enumerate() {
                if let Some(value) = value {
                    self.value_mut(*value).uses.push(Use { node: id, slot });
                }
            }
            for (i, value) in new.outputs.iter().enumerate() {
                self.value_mut(*value).def = Def::Node(id, i);
            }
            self.names.insert(new.name.as_str().into());
            self.nodes.push(Node {
                scope: new.scope,
                name: new.name.into(),
                op: new.op.into(),
                domain: new.domain.into(),
                inputs: new.inputs,
                outputs: new.outputs.into_iter().map(Some).collect(),
                attributes: new.attributes,
                bodies: vec![],
                source: None,
            });
            touched.push(new.scope);
            applied.added.push(id);
        }
        let mut orphans = vec![];
        for (at, new) in patch.redirects {
            let slot = &mut self.node_mut(at.node).inputs[at.slot];
            let old = slot.replace(new);
            if let Some(old) = old {
                self.value_mut(old).uses.retain(|u| *u != at);
                orphans.push(old);
            }
            self.value_mut(new).uses.push(at);
            self.edited.insert(at.node);
            touched.push(self.node(at.node).scope);
        }
        for (old, new) in patch.outputs {
            self.move_output(old, new)?;
            orphans.push(old);
            touched.push(self.value(new).scope);
        }
        for (value, tensor) in patch.revalued {
            if let Some(stored) = &mut self.value_mut(value).stored {
                stored.dims = tensor.dims().to_vec();
                stored.payload = Payload::Raw(tensor.bytes().clone());
            }
            self.revalued.insert(value, tensor);
            applied.revalued.push(value);
        }
        applied.removed = self.sweep(orphans);
        touched.sort_unstable();
        touched.dedup();
        for scope in touched {
            self.place_new(scope, &applied.added)?;
        }
        self.revision += 1;
        Ok(applied)
    }

    /// Gives `new` the name and the place of the output `old`.
    fn move_output(&mut self, old: ValueId, new: ValueId) -> Result<()> {
        let scope = self.value(old).scope;
        if !matches!(self.value(new).def, Def::Node(..)) || self.value(new).is_output {
            let why = format!("output {} needs a value of its own", self.name(old));
            return Err(Error::patch(why));
        }
        let (a, b) = (self.value(old).name.clone(), self.value(new).name.clone());
        self.value_mut(old).name = b.clone();
        self.value_mut(new).name = a.clone();
        let names = &mut self.scope_mut(scope).by_name;
        names.insert(a, new);
        names.insert(b, old);
        for slot in &mut self.scope_mut(scope).outputs {
            if *slot == old {
                *slot = new;
            }
        }
        self.value_mut(old).is_output = false;
        self.value_mut(new).is_output = true;
        let ty = self.value(old).ty.clone();
        self.value_mut(new).ty = ty;
        let readers = [old, new].map(|v| self.value(v).uses.clone()).concat();
        self.edited.extend(readers.iter().map(|u| u.node));
        for value in [old, new] {
            if let Some((node, _)) = self.producer(value) {
                self.edited.insert(node);
            }
        }
        Ok(())
    }

    /// Removes what only the values in `orphans` kept alive.
    fn sweep(&mut self, mut orphans: Vec<ValueId>) -> Vec<NodeId> {
        let mut removed = vec![];
        while let Some(value) = orphans.pop() {
            let v = self.value(value);
            if !v.uses.is_empty() || v.is_output {
                continue;
            }
            match v.def {
                Def::Input(_) => {}
                Def::Initializer => {
                    self.dropped.insert(value);
                }
                Def::Node(node, _) => {
                    let outputs = self.node(node).outputs.iter().flatten();
                    let dead = outputs
                        .map(|o| self.value(*o))
                        .all(|o| o.uses.is_empty() && !o.is_output);
                    if dead && self.removed.insert(node) {
                        self.remove(node, &mut orphans);
                        removed.push(node);
                    }
                }
            }
        }
        removed
    }

    /// Takes a node's reads back, those of its bodies included.
    fn remove(&mut self, node: NodeId, orphans: &mut Vec<ValueId>) {
        let mut stack = vec![node];
        while let Some(id) = stack.pop() {
            self.removed.insert(id);
            let inputs: Vec<ValueId> = self.node(id).inputs.iter().flatten().copied().collect();
            for value in inputs {
                self.value_mut(value).uses.retain(|u| u.node != id);
                orphans.push(value);
            }
            let bodies: Vec<ScopeId> = self.node(id).bodies.iter().map(|b| b.1).collect();
            for body in bodies {
                stack.extend(self.scope(body).nodes.clone());
            }
        }
    }

    /// Puts the new nodes of a scope just before their first reader, and drops the removed ones.
    fn place_new(&mut self, scope: ScopeId, added: &[NodeId]) -> Result<()> {
        let old: Vec<NodeId> = self.scope(scope).nodes.clone();
        let old: Vec<NodeId> = old
            .into_iter()
            .filter(|n| !self.removed.contains(n))
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
                crate::graph::ScopeKind::Body(holder, _) => node = *holder,
                _ => return None,
            }
        }
    }
}
