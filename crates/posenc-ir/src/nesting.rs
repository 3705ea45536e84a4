//! Which messages of the format can contain tensors, and in which fields.

use crate::field;

/// A message that can contain tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Model,
    Training,
    Graph,
    Function,
    Node,
    Attribute,
    Sparse,
    Tensor,
}

impl Message {
    /// The message in a field, where it can contain tensors.
    pub(crate) fn child(self, number: u32) -> Option<Self> {
        use field::{attribute, function, graph, model, node, sparse, training};
        Some(match (self, number) {
            (Self::Model, model::GRAPH) => Self::Graph,
            (Self::Model, model::TRAINING) => Self::Training,
            (Self::Model, model::FUNCTION) => Self::Function,
            (Self::Training, training::INITIALIZATION | training::ALGORITHM) => Self::Graph,
            (Self::Graph, graph::NODE) | (Self::Function, function::NODE) => Self::Node,
            (Self::Graph, graph::INITIALIZER)
            | (Self::Attribute, attribute::TENSOR | attribute::TENSORS)
            | (Self::Sparse, sparse::VALUES | sparse::INDICES) => Self::Tensor,
            (Self::Graph, graph::SPARSE_INITIALIZER)
            | (Self::Attribute, attribute::SPARSE_TENSOR | attribute::SPARSE_TENSORS) => {
                Self::Sparse
            }
            (Self::Node, node::ATTRIBUTE) | (Self::Function, function::ATTRIBUTE_PROTO) => {
                Self::Attribute
            }
            (Self::Attribute, attribute::GRAPH | attribute::GRAPHS) => Self::Graph,
            _ => return None,
        })
    }
}
