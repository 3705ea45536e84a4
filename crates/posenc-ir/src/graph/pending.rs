//! Scopes that are being read, before names are resolved.

use std::ops::Range;

use super::scope::ScopeKind;
use crate::id::{NodeId, ScopeId};
use crate::proto::TypeProto;

/// A scope whose message is still to be read.
pub(super) struct Waiting {
    pub(super) kind: ScopeKind,
    pub(super) parent: Option<ScopeId>,
    pub(super) span: Range<usize>,
    pub(super) depth: usize,
    pub(super) id: ScopeId,
}

/// The content of a scope before its names are resolved.
#[derive(Default)]
pub(super) struct Pending<'a> {
    pub(super) inputs: Vec<(String, Option<TypeProto>)>,
    pub(super) outputs: Vec<(String, Option<TypeProto>)>,
    pub(super) infos: Vec<((String, Option<TypeProto>), usize)>,
    /// Of each node, in order.
    pub(super) nodes: Vec<Edges>,
    /// The names of the inputs of all nodes, in order.
    pub(super) inputs_of_nodes: Vec<&'a str>,
    pub(super) outputs_of_nodes: Vec<&'a str>,
    /// The node, the index and name of the attribute, and the range of the graph.
    pub(super) bodies: Vec<(NodeId, usize, Box<str>, Range<usize>)>,
}

/// The number of inputs and outputs of a node.
#[derive(Default)]
pub(super) struct Edges {
    pub(super) inputs: u32,
    pub(super) outputs: u32,
}
