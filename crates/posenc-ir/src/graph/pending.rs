//! What reading knows before names are resolved.

use std::ops::Range;

use super::ScopeKind;
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
pub(super) struct Pending {
    pub(super) inputs: Vec<(String, Option<TypeProto>)>,
    pub(super) outputs: Vec<(String, Option<TypeProto>)>,
    pub(super) infos: Vec<((String, Option<TypeProto>), usize)>,
    pub(super) nodes: Vec<Unresolved>,
    /// Where the names stand.
    pub(super) inputs_of_nodes: Vec<Range<usize>>,
    pub(super) outputs_of_nodes: Vec<Range<usize>>,
    /// Node, place and name of the attribute, and where the graph stands.
    pub(super) bodies: Vec<(NodeId, usize, Box<str>, Range<usize>)>,
}

/// A node that knows its edges by name: runs of the lists in [`Pending`].
pub(super) struct Unresolved {
    pub(super) node: NodeId,
    pub(super) inputs: Range<usize>,
    pub(super) outputs: Range<usize>,
}
