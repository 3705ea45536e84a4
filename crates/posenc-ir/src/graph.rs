//! The graph: values, nodes and scopes under typed handles.

pub(crate) mod message;
mod names;
mod pending;
pub(crate) mod read;
pub(crate) mod scope;
mod value;

pub use scope::{Scope, ScopeKind};
pub use value::{Def, Dim, Type, Use, Value};

use std::ops::Range;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::dtype::DType;
use crate::external::ExternalDir;
use crate::id::{NodeId, ScopeId, ValueId};
use crate::node::Node;
use crate::proto::TypeProto;
use crate::stored::{Payload, Stored};
use crate::tensor::Tensor;

/// A model's graph, with the bodies of its control flow and its functions, in one arena.
///
/// A value that a body captures from an outer scope is the outer value itself, so that captures are
/// uses. A graph is edited by patches: see [`Emitter`](crate::Emitter).
#[derive(Clone, Debug)]
pub struct Graph {
    pub(crate) values: Vec<Value>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) scopes: Vec<Scope>,
    /// Nodes that were removed; ids are never reused.
    pub(crate) removed: FxHashSet<NodeId>,
    /// Nodes whose inputs or outputs differ from the source.
    pub(crate) edited: FxHashSet<NodeId>,
    /// Constants whose payload differs from the source.
    pub(crate) revalued: FxHashMap<ValueId, Tensor>,
    /// Inputs and outputs whose declared dimensions differ from the source.
    pub(crate) redeclared: FxHashSet<ValueId>,
    /// Initializers that were removed.
    pub(crate) dropped: FxHashSet<ValueId>,
    /// The types of values that are not dense tensors, or have negative dimensions.
    pub(crate) other_types: FxHashMap<ValueId, TypeProto>,
    /// The overloads that nodes call.
    pub(crate) overloads: FxHashMap<NodeId, Box<str>>,
    pub(crate) revision: u64,
    /// Values with an index below this were read from the source.
    pub(crate) read_values: usize,
    /// Where external data is looked for.
    pub(crate) external_dir: Arc<ExternalDir>,
    /// Whether tensors may be stored in other files.
    pub(crate) has_external_data: bool,
}

impl Graph {
    /// The main graph.
    pub fn main(&self) -> ScopeId {
        ScopeId::from_index(0)
    }

    /// Every scope: the main graph first, then functions and bodies, without the bodies of removed
    /// nodes.
    pub fn scopes(&self) -> impl Iterator<Item = ScopeId> {
        let exists = |id: &ScopeId| match &self.scope(*id).kind {
            ScopeKind::Body(node, _) => !self.removed.contains(node),
            ScopeKind::Main | ScopeKind::Function { .. } => true,
        };
        (0..self.scopes.len())
            .map(ScopeId::from_index)
            .filter(exists)
    }

    /// A scope.
    pub fn scope(&self, id: ScopeId) -> &Scope {
        &self.scopes[id.index()]
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The overload of the function that a node calls; mostly empty.
    pub fn overload(&self, id: NodeId) -> &str {
        self.overloads.get(&id).map_or("", |o| o)
    }

    /// Whether the node was removed by a commit.
    pub fn is_removed(&self, id: NodeId) -> bool {
        self.removed.contains(&id)
    }

    /// The nodes of every scope in order of creation, without removed ones.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        (0..self.nodes.len())
            .map(NodeId::from_index)
            .filter(|id| !self.removed.contains(id))
            .map(|id| (id, self.node(id)))
    }

    /// A value.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// The number of values that were ever created: an upper bound of [`ValueId::index`].
    pub fn value_count(&self) -> usize {
        self.values.len()
    }

    /// The number of nodes that were ever created: an upper bound of [`NodeId::index`].
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Every value that was ever created.
    pub fn values(&self) -> impl Iterator<Item = ValueId> + use<> {
        (0..self.values.len()).map(ValueId::from_index)
    }

    /// The value with this name in a scope or the scopes around it.
    pub fn find(&self, scope: ScopeId, name: &str) -> Option<ValueId> {
        let mut at = Some(scope);
        while let Some(id) = at {
            let scope = self.scope(id);
            if let Some(value) = scope.by_name.get(name, &self.values) {
                return Some(value);
            }
            at = scope.parent;
        }
        None
    }

    /// A value's name.
    pub fn name(&self, id: ValueId) -> &str {
        &self.value(id).name
    }

    /// The node that computes the value, and the index of the output.
    pub fn producer(&self, id: ValueId) -> Option<(NodeId, usize)> {
        match self.value(id).def {
            Def::Node(node, i) => Some((node, i as usize)),
            Def::Input(_) | Def::Initializer => None,
        }
    }

    /// The uses of the value, also in nested scopes.
    pub fn uses(&self, id: ValueId) -> &[Use] {
        &self.value(id).uses
    }

    /// The declared element type.
    pub fn dtype(&self, id: ValueId) -> Option<DType> {
        match (self.value(id).ty(), &self.value(id).stored) {
            (_, Some(stored)) => stored.dtype,
            (Some(Type::Tensor { dtype, .. }), _) => *dtype,
            _ => None,
        }
    }

    /// The stored tensor of a value: of an initializer, of a `Constant` node, or the default of an
    /// input.
    pub fn stored(&self, id: ValueId) -> Option<&Stored> {
        self.value(id).stored.as_deref()
    }

    /// The tensor of a constant, where it is dense and its payload can be read. Raw payloads are not
    /// copied, external data is mapped.
    pub fn constant(&self, id: ValueId) -> Option<Tensor> {
        match self.revalued.get(&id) {
            Some(tensor) => Some(tensor.clone()),
            None => {
                let stored = self.stored(id)?;
                match &stored.payload {
                    Payload::External(external) => self.external_dir.tensor(external, stored),
                    _ => stored.tensor().ok(),
                }
            }
        }
    }

    /// The place of a node in messages: `graph/If_3.then_branch/Add_7`. A node without a name is
    /// named by its operator and first output.
    pub fn place(&self, id: NodeId) -> String {
        let mut parts = vec![self.label(id)];
        let mut scope = self.node(id).scope;
        loop {
            let s = self.scope(scope);
            match &s.kind {
                ScopeKind::Body(node, attribute) => {
                    parts.push(format!("{}.{attribute}", self.label(*node)));
                    scope = self.node(*node).scope;
                }
                ScopeKind::Main | ScopeKind::Function { .. } => {
                    parts.push(s.name.to_string());
                    break;
                }
            }
        }
        parts.retain(|p| !p.is_empty());
        parts.reverse();
        parts.join("/")
    }

    fn label(&self, id: NodeId) -> String {
        let node = self.node(id);
        match node.outputs.iter().flatten().next() {
            _ if !node.name.is_empty() => node.name.to_string(),
            Some(out) if node.op().is_empty() => format!("node of {}", self.name(*out)),
            Some(out) => format!("{} of {}", node.op(), self.name(*out)),
            None => node.op().to_owned(),
        }
    }

    /// The range of the field that a node was read from; `None` for new nodes.
    pub(crate) fn source(&self, id: NodeId) -> Option<Range<usize>> {
        let node = self.node(id);
        Some(self.scope(node.scope).piece(node.piece?))
    }

    pub(crate) fn value_mut(&mut self, id: ValueId) -> &mut Value {
        &mut self.values[id.index()]
    }

    pub(crate) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.index()]
    }

    pub(crate) fn scope_mut(&mut self, id: ScopeId) -> &mut Scope {
        &mut self.scopes[id.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::scope::Piece;
    use super::*;

    #[test]
    fn nodes_and_values_stay_small() {
        assert!(size_of::<Node>() <= 72);
        assert!(size_of::<Value>() <= 72);
        assert!(size_of::<Piece>() <= 16);
        assert!(size_of::<Use>() <= 8);
    }
}
