//! What reading knows before names are resolved.

use std::ops::Range;

use super::scope::ScopeKind;
use crate::id::{NodeId, ScopeId};
use crate::proto::TypeProto;

/// A scope whose message waits to be read.
pub(super) struct Waiting {
    pub(super) kind: ScopeKind,
    pub(super) parent: Option<ScopeId>,
    pub(super) span: Range<usize>,
    pub(super) depth: usize,
    pub(super) id: ScopeId,
}

/// What a scope says before its names are resolved.
#[derive(Default)]
pub(super) struct Pending<'a> {
    pub(super) inputs: Vec<(String, Option<TypeProto>)>,
    pub(super) outputs: Vec<(String, Option<TypeProto>)>,
    pub(super) infos: Vec<((String, Option<TypeProto>), usize)>,
    /// Of each node in turn.
    pub(super) nodes: Vec<Edges>,
    /// The names of all nodes, one after the other.
    pub(super) inputs_of_nodes: Vec<&'a str>,
    pub(super) outputs_of_nodes: Vec<&'a str>,
    /// Node, place and name of the attribute, and where the graph stands.
    pub(super) bodies: Vec<(NodeId, usize, Box<str>, Range<usize>)>,
}

/// How many names of inputs and outputs belong to a node.
#[derive(Default)]
pub(super) struct Edges {
    pub(super) inputs: u32,
    pub(super) outputs: u32,
}
