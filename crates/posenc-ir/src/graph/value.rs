//! Values, the edges of a graph, and their types.

use std::fmt;

use ecow::EcoString;

use crate::dtype::DType;
use crate::id::{NodeId, ScopeId, narrow};
use crate::list::List;
use crate::stored::Stored;

/// A value of the graph: an edge.
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

/// What defines a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Def {
    /// An input of a graph, body or function, by its index.
    Input(u32),
    /// An output of a node, by its index.
    Node(NodeId, u32),
    /// An initializer.
    Initializer,
}

/// One use of a value: a node, possibly of a nested scope, and the index of its input.
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
        /// Element type; `None` where it is unknown or not declared.
        dtype: Option<DType>,
        /// Shape; `None` where the rank is not declared.
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
    /// A symbol; equal symbols are equal lengths.
    Symbol(Box<str>),
    /// Not declared.
    Unknown,
}

impl Use {
    /// Input number `slot` of a node.
    pub fn new(node: NodeId, slot: usize) -> Self {
        let slot = narrow(slot);
        Self { node, slot }
    }

    /// The index of the input.
    pub fn slot(self) -> usize {
        self.slot as usize
    }
}

impl Value {
    /// A value without type, payload and uses.
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

    /// What defines it.
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

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(n) => n.fmt(f),
            Self::Symbol(s) => f.write_str(s),
            Self::Unknown => f.write_str("?"),
        }
    }
}
