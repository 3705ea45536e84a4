//! Scopes: graphs, bodies and functions.

use std::ops::Range;
use std::sync::OnceLock;

use super::names::Names;
use crate::id::{NodeId, PieceId, ScopeId, ValueId};

/// A graph, a body or a function, with its nodes.
#[derive(Clone, Debug)]
pub struct Scope {
    pub(crate) kind: ScopeKind,
    pub(crate) parent: Option<ScopeId>,
    pub(crate) name: Box<str>,
    pub(crate) by_name: Names,
    pub(crate) inputs: Vec<ValueId>,
    pub(crate) outputs: Vec<ValueId>,
    pub(crate) initializers: Vec<ValueId>,
    /// In the order of the file, or in topological order after a commit.
    pub(crate) nodes: Vec<NodeId>,
    /// Whether `nodes` are in topological order, once that was asked for.
    pub(crate) in_order: OnceLock<bool>,
    /// The fields of the message, in the order of the file.
    pub(crate) layout: Vec<Piece>,
    /// The range of the message in the source.
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

/// What a field of a graph message contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Node(NodeId),
    Initializer(ValueId),
    /// The type of an inner value, which an edit may have removed.
    Info(ValueId),
    Other,
}

impl Scope {
    pub(crate) fn set_nodes(&mut self, nodes: Vec<NodeId>) {
        self.nodes = nodes;
        self.in_order = OnceLock::new();
    }

    /// What the scope is the body of.
    pub fn kind(&self) -> &ScopeKind {
        &self.kind
    }

    /// The scope around it; `None` for the main graph and functions.
    pub fn parent(&self) -> Option<ScopeId> {
        self.parent
    }

    /// The graph's or function's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The inputs in order, with initializers that older files list among them.
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

    /// The range and content of every field of the message as it was read.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (Range<usize>, Item)> {
        let ends = self.layout.iter().skip(1).map(|p| p.start);
        let ends = ends.chain([self.span.end]);
        let spans = self.layout.iter().zip(ends);
        spans.map(|(piece, end)| (piece.start..end, piece.item))
    }

    /// The range of one of these fields.
    pub(crate) fn piece(&self, id: PieceId) -> Range<usize> {
        let next = self.layout.get(id.index() + 1);
        self.layout[id.index()].start..next.map_or(self.span.end, |p| p.start)
    }
}
