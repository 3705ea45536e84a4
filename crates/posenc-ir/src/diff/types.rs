//! Differences of two models, as data.

use std::collections::BTreeMap;

use super::pairs::Pairs;
use crate::id::ValueId;

/// The differences of two models, a and b.
#[derive(Clone, Debug)]
pub struct Diff {
    /// Nodes, without those in bodies of nodes that only one model has.
    pub nodes: Delta<Part>,
    /// Initializers.
    pub initializers: Delta<Part>,
    /// Inputs of the graph, with their types.
    pub inputs: Delta<Part>,
    /// Outputs of the graph, with their types.
    pub outputs: Delta<Part>,
    /// Local functions. Nodes of functions that both have are among `nodes`.
    pub functions: Delta<Part>,
    /// Under `inputs` and `outputs`: the names of those that both models have, where their order
    /// differs. Inputs with a default are not listed.
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
    /// What both have, with differences.
    pub changed: Vec<Change<T>>,
}

/// A part of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its place in the graph, or its name.
    pub place: String,
    /// The part in the ONNX text syntax; weights as hashes.
    pub text: String,
    /// For an added or removed node, the places of the nodes of both models that read it.
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

/// How a part differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Aspect {
    /// Attributes of a node or function.
    Attributes,
    /// Inputs of a node, except those from added or removed nodes.
    Inputs,
    /// Which outputs a node has.
    Outputs,
    /// Inputs or outputs of a body.
    Body,
    /// Element type or shape.
    Type,
    /// The name of an input or output.
    Name,
    /// Values of an initializer; or the node that computes an output.
    Value,
}

/// An entry that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The entry of a.
    pub a: Option<String>,
    /// The entry of b.
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
    /// The number of parts that are added, removed or changed.
    pub fn len(&self) -> usize {
        self.added.len() + self.removed.len() + self.changed.len()
    }

    /// Whether there are none.
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
