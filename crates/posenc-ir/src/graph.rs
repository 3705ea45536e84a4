//! The graph: values, nodes and scopes under typed handles.

pub(crate) mod message;
mod names;
mod pending;
mod read;

pub(crate) use read::MAX_DEPTH;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use ecow::EcoString;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::dtype::DType;
use crate::error::Result;
use crate::file::Home;
use crate::id::{NodeId, PieceId, ScopeId, ValueId, narrow};
use crate::list::List;
use crate::node::Node;
use crate::proto::TypeProto;
use crate::stored::{Payload, Stored};
use crate::tensor::Tensor;
use names::Names;

/// A model's graph with the bodies of its control flow and of its functions, in one arena.
///
/// A value that a body captures from an outer scope is the outer value itself, so captures count
/// as uses everywhere. Nothing here can be edited in place: see [`Emitter`](crate::Emitter).
#[derive(Clone, Debug)]
pub struct Graph {
    pub(crate) values: Vec<Value>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) scopes: Vec<Scope>,
    /// Node is gone; ids are never reused.
    pub(crate) removed: FxHashSet<NodeId>,
    /// Inputs or bodies that no longer are those of the source.
    pub(crate) edited: FxHashSet<NodeId>,
    /// Constants with another payload than the source's.
    pub(crate) revalued: FxHashMap<ValueId, Tensor>,
    /// Initializers that nothing needs any more.
    pub(crate) dropped: FxHashSet<ValueId>,
    /// The types of values that are no dense tensors, or have negative dimensions.
    pub(crate) other_types: FxHashMap<ValueId, TypeProto>,
    /// Nodes that name one of several functions of the same domain and name.
    pub(crate) overloads: FxHashMap<NodeId, Box<str>>,
    pub(crate) revision: u64,
    /// Values with an index below this come from the source.
    pub(crate) read_values: usize,
    /// Where external payloads are looked for.
    pub(crate) home: Arc<Home>,
    /// Payloads stand in other files, or may do so where no scope shows them.
    pub(crate) is_split: bool,
}

/// An edge of the graph.
#[derive(Clone, Debug)]
pub struct Value {
    pub(crate) name: EcoString,
    pub(crate) scope: ScopeId,
    pub(crate) def: Def,
    pub(crate) ty: Option<Box<Type>>,
    pub(crate) stored: Option<Box<Stored>>,
    pub(crate) uses: List<Use, 1>,
    pub(crate) is_output: bool,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Def {
    /// Input of a graph, body or function, by its place in the list.
    Input(u32),
    /// Output of a node, by its place in the list.
    Node(NodeId, u32),
    /// An initializer.
    Initializer,
}

/// One use of a value: a node, possibly of a nested scope, and the place in its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Use {
    /// The node that reads the value.
    pub node: NodeId,
    slot: u32,
}

/// The declared type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// A dense tensor.
    Tensor {
        /// Element type; `None` where unknown to the format or not given.
        dtype: Option<DType>,
        /// Shape; `None` where not even the rank is given.
        shape: Option<Vec<Dim>>,
    },
    /// A sequence, map, optional, sparse or opaque type.
    Other,
}

/// The length of an axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    /// A number.
    Known(usize),
    /// A symbol: equal symbols are equal lengths.
    Symbol(Box<str>),
    /// Not given.
    Unknown,
}

/// A graph, a body or a function: nodes that see each other.
#[derive(Clone, Debug)]
pub struct Scope {
    pub(crate) kind: ScopeKind,
    pub(crate) parent: Option<ScopeId>,
    pub(crate) name: Box<str>,
    pub(crate) by_name: Names,
    pub(crate) inputs: Vec<ValueId>,
    pub(crate) outputs: Vec<ValueId>,
    pub(crate) initializers: Vec<ValueId>,
    /// In the order of the file; new nodes where the order of computation puts them.
    pub(crate) nodes: Vec<NodeId>,
    /// The message's fields as the file has them; empty for a scope without source.
    pub(crate) layout: Vec<Piece>,
    /// Where the message stands in the source.
    pub(crate) span: Range<usize>,
}

/// What a scope is the body of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScopeKind {
    /// The model's graph.
    Main,
    /// The body of a control-flow node: the node and its attribute.
    Body(NodeId, Box<str>),
    /// A model-local function: domain and overload; the name is the scope's.
    Function {
        /// The function's domain.
        domain: Box<str>,
        /// Its overload; mostly empty.
        overload: Box<str>,
    },
}

/// One field of a graph message, which ends where the next one starts.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) start: usize,
    pub(crate) item: Item,
}

/// What a field of a graph message holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Node(NodeId),
    Initializer(ValueId),
    /// Type of an inner value, which may be gone after an edit.
    Info(ValueId),
    Other,
}

impl Graph {
    /// The main graph.
    pub fn main(&self) -> ScopeId {
        ScopeId::from_index(0)
    }

    /// Every scope: the main graph first, then functions and bodies. Bodies of nodes that were
    /// swept are left out.
    pub fn scopes(&self) -> impl Iterator<Item = ScopeId> {
        let here = |id: &ScopeId| match &self.scope(*id).kind {
            ScopeKind::Body(node, _) => !self.removed.contains(node),
            ScopeKind::Main | ScopeKind::Function { .. } => true,
        };
        (0..self.scopes.len()).map(ScopeId::from_index).filter(here)
    }

    /// A scope.
    pub fn scope(&self, id: ScopeId) -> &Scope {
        &self.scopes[id.index()]
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Which of the functions of one domain and name a node calls; mostly empty.
    pub fn overload(&self, id: NodeId) -> &str {
        self.overloads.get(&id).map_or("", |o| o)
    }

    /// Whether a commit has swept the node.
    pub fn is_removed(&self, id: NodeId) -> bool {
        self.removed.contains(&id)
    }

    /// The nodes of every scope that are in the graph, in creation order.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        (0..self.nodes.len())
            .map(NodeId::from_index)
            .filter(|id| !self.removed.contains(id))
            .map(|id| (id, self.node(id)))
    }

    /// An edge.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// How many values were ever made: an upper bound of [`ValueId::index`].
    pub fn value_count(&self) -> usize {
        self.values.len()
    }

    /// How many nodes were ever made: an upper bound of [`NodeId::index`].
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Every value that was ever made.
    pub fn values(&self) -> impl Iterator<Item = ValueId> + use<> {
        (0..self.values.len()).map(ValueId::from_index)
    }

    /// The value of this name in a scope or the scopes around it.
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

    /// The node that computes the value, with the place in its outputs.
    pub fn producer(&self, id: ValueId) -> Option<(NodeId, usize)> {
        match self.value(id).def {
            Def::Node(node, i) => Some((node, i as usize)),
            Def::Input(_) | Def::Initializer => None,
        }
    }

    /// The nodes that read the value, those of nested scopes included.
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

    /// The initializer behind a value: of its own, or the payload of a `Constant` node.
    /// Also the default of an input that has one.
    pub fn stored(&self, id: ValueId) -> Option<&Stored> {
        self.value(id).stored.as_deref()
    }

    /// The constant behind a value where its payload is at hand and dense; no element is copied
    /// when it is stored raw, and external data is mapped.
    pub fn constant(&self, id: ValueId) -> Option<Tensor> {
        match self.revalued.get(&id) {
            Some(tensor) => Some(tensor.clone()),
            None => {
                let stored = self.stored(id)?;
                match &stored.payload {
                    Payload::External(external) => self.home.tensor(external, stored),
                    _ => stored.tensor().ok(),
                }
            }
        }
    }

    /// Where a node stands, for people: `graph/If_3.then_branch/Add_7`. A node without a name
    /// goes by its operator and first output.
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

    /// The nodes of a scope in an order of computation: the file's, where that is one; ties go
    /// by the file's order. Captures of bodies count.
    ///
    /// # Errors
    /// When nodes depend on each other in a circle; one of them is named.
    pub fn order(&self, scope: ScopeId) -> Result<Vec<NodeId>> {
        crate::order::order(self, scope)
    }

    /// Where the field stands that a node was read from; `None` for new nodes.
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

    pub(crate) fn read(
        source: &Bytes,
        graph: Range<usize>,
        functions: &[Range<usize>],
        passed: &dyn Fn(&Range<usize>),
    ) -> Result<Self> {
        read::read(source, graph, functions, passed)
    }
}

impl Use {
    /// Input number `slot` of a node.
    pub fn new(node: NodeId, slot: usize) -> Self {
        let slot = narrow(slot);
        Self { node, slot }
    }

    /// Which of the node's inputs.
    pub fn slot(self) -> usize {
        self.slot as usize
    }
}

impl Value {
    /// A value of which nothing more is known.
    pub(crate) fn new(name: EcoString, scope: ScopeId, def: Def) -> Self {
        Self {
            name,
            scope,
            def,
            ty: None,
            stored: None,
            uses: List::default(),
            is_output: false,
        }
    }

    /// The name; unique within a scope.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The scope that defines it.
    pub fn scope(&self) -> ScopeId {
        self.scope
    }

    /// Where it comes from.
    pub fn def(&self) -> Def {
        self.def
    }

    /// Its declared type.
    pub fn ty(&self) -> Option<&Type> {
        self.ty.as_deref()
    }

    /// Its declared shape.
    pub fn shape(&self) -> Option<&[Dim]> {
        match self.ty() {
            Some(Type::Tensor { shape, .. }) => shape.as_deref(),
            _ => None,
        }
    }

    /// Whether it is an output of its scope.
    pub fn is_output(&self) -> bool {
        self.is_output
    }
}

impl Scope {
    /// What the scope is the body of.
    pub fn kind(&self) -> &ScopeKind {
        &self.kind
    }

    /// The scope around it.
    pub fn parent(&self) -> Option<ScopeId> {
        self.parent
    }

    /// The graph's or function's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The inputs in order; initializers that older files list among them included.
    pub fn inputs(&self) -> &[ValueId] {
        &self.inputs
    }

    /// The outputs in order.
    pub fn outputs(&self) -> &[ValueId] {
        &self.outputs
    }

    /// The initializers in the order of the file.
    pub fn initializers(&self) -> &[ValueId] {
        &self.initializers
    }

    /// The nodes in the order of the file.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Every field of the message as it was read: where it stands, and what it holds.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (Range<usize>, Item)> {
        let ends = self.layout.iter().skip(1).map(|p| p.start);
        let ends = ends.chain([self.span.end]);
        let spans = self.layout.iter().zip(ends);
        spans.map(|(piece, end)| (piece.start..end, piece.item))
    }

    /// Where one of these fields stands.
    pub(crate) fn piece(&self, id: PieceId) -> Range<usize> {
        let next = self.layout.get(id.index() + 1);
        self.layout[id.index()].start..next.map_or(self.span.end, |p| p.start)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(n) => n.fmt(f),
            Self::Symbol(s) => f.write_str(s),
            Self::Unknown => f.write_str("?"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_node_costs_stays_small() {
        assert!(size_of::<Node>() <= 72);
        assert!(size_of::<Value>() <= 72);
        assert!(size_of::<Piece>() <= 16);
        assert!(size_of::<Use>() <= 8);
    }
}
