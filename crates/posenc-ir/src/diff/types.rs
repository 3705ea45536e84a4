//! What a comparison of two models gives.

use std::collections::BTreeMap;

use super::pairs::Pairs;
use crate::id::ValueId;

/// What two models, a and b, do not have in common.
#[derive(Clone, Debug)]
pub struct Diff {
    /// Nodes. The bodies of a node that only one model has are not listed apart.
    pub nodes: Delta<Part>,
    /// Initializers, by their values.
    pub initializers: Delta<Part>,
    /// Inputs of the graph, with their types.
    pub inputs: Delta<Part>,
    /// Outputs of the graph, with their types.
    pub outputs: Delta<Part>,
    /// Local functions. Nodes of functions that both have are among `nodes`.
    pub functions: Delta<Part>,
    /// The order of inputs and of outputs, under `inputs` and `outputs`: the names of those that both
    /// models have. Inputs with a default are left out.
    pub order: Vec<Entry>,
    /// Versions of operator sets by domain.
    pub opsets: Vec<Entry>,
    /// Metadata of the model by key.
    pub metadata: Vec<Entry>,
    /// The version of the file format, under `ir_version`.
    pub model: Vec<Entry>,
    pub(super) pairs: Pairs,
    pub(super) initial: BTreeMap<ValueId, ValueId>,
}

/// Parts of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta<T> {
    /// What only b has.
    pub added: Vec<T>,
    /// What only a has.
    pub removed: Vec<T>,
    /// What both have, but not alike.
    pub changed: Vec<Change<T>>,
}

/// A part of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it stands, or its name.
    pub place: String,
    /// The part in the ONNX text syntax; weights as hashes.
    pub text: String,
    /// Places of the nodes that read an added or removed node and that both models have.
    pub read_by: Vec<String>,
}

/// A part that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<T> {
    /// The part in a.
    pub a: T,
    /// The part in b.
    pub b: T,
    /// What differs.
    pub what: Vec<Aspect>,
}

/// In what a part differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Aspect {
    /// Attributes of a node or function.
    Attributes,
    /// What a node reads, beside nodes that were added or removed before it.
    Inputs,
    /// Which outputs a node has.
    Outputs,
    /// What a body gives back or takes.
    Body,
    /// Element type or shape.
    Type,
    /// The name of an input or output.
    Name,
    /// Values of an initializer; or which value an output is.
    Value,
}

/// An entry that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// What a has there.
    pub a: Option<String>,
    /// What b has there.
    pub b: Option<String>,
}

impl Aspect {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Attributes => "attributes",
            Self::Inputs => "inputs",
            Self::Outputs => "outputs",
            Self::Body => "body",
            Self::Type => "type",
            Self::Name => "name",
            Self::Value => "value",
        }
    }
}

impl<T> Delta<T> {
    /// How many parts are added, removed or changed.
    pub fn len(&self) -> usize {
        self.added.len() + self.removed.len() + self.changed.len()
    }

    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Default for Delta<T> {
    fn default() -> Self {
        Self {
            added: vec![],
            removed: vec![],
            changed: vec![],
        }
    }
}
