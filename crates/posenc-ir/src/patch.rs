//! Patches: edits as values, which are applied completely or not at all.

mod apply;
mod check;
mod names;
mod sweep;

use std::collections::BTreeMap;

use crate::dtype::DType;
use crate::graph::{Dim, Graph, Use};
use crate::id::{NodeId, ScopeId, ValueId};
use crate::proto::AttributeProto;
use crate::tensor::Tensor;

/// An edit of a graph: new nodes, constants and inputs, redirected uses, and new payloads. Recorded
/// by an [`Emitter`](crate::Emitter), applied by [`Model::commit`](crate::Model::commit).
#[derive(Clone, Debug)]
pub struct Patch {
    revision: u64,
    base: usize,
    values: Vec<Draft>,
    pub(crate) nodes: Vec<NewNode>,
    pub(crate) initializers: Vec<Init>,
    pub(crate) inputs: Vec<NewInput>,
    /// Values that are removed where nothing uses them.
    pub(crate) released: Vec<ValueId>,
    pub(crate) redirects: Vec<(Use, ValueId)>,
    pub(crate) outputs: Vec<(ValueId, ValueId)>,
    pub(crate) revalued: BTreeMap<ValueId, Tensor>,
    /// Values whose declared dimensions change.
    pub(crate) redeclared: BTreeMap<ValueId, Vec<Dim>>,
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

/// What a commit changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// New nodes.
    pub added: Vec<NodeId>,
    /// Nodes that were removed because nothing uses them.
    pub removed: Vec<NodeId>,
    /// Constants with a new payload.
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
            redeclared: BTreeMap::new(),
        }
    }

    pub(crate) fn value(&mut self, scope: ScopeId, name: String, kind: NewValue) -> ValueId {
        let id = ValueId::from_index(self.base + self.values.len());
        self.values.push(Draft { scope, name, kind });
        id
    }

    /// The scope of a value of the patch.
    pub(crate) fn scope_of(&self, value: ValueId) -> ScopeId {
        self.values[value.index() - self.base].scope
    }

    /// Whether a node of the patch computes a value of it.
    pub(crate) fn is_computed(&self, value: ValueId) -> bool {
        self.values[value.index() - self.base].kind == NewValue::Computed
    }

    /// Whether the patch changes nothing.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
            && self.inputs.is_empty()
            && self.released.is_empty()
            && self.redirects.is_empty()
            && self.outputs.is_empty()
            && self.revalued.is_empty()
            && self.redeclared.is_empty()
    }

    /// The name of a value of the graph or of the patch.
    pub fn name<'a>(&'a self, graph: &'a Graph, value: ValueId) -> &'a str {
        match value.index().checked_sub(self.base) {
            None => graph.name(value),
            Some(i) => &self.values[i].name,
        }
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
