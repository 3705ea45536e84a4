//! Which messages of the file format can hold tensors, and in which of their fields.

use crate::model::field as model_field;

/// A message in which tensors can stand.
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
    /// The message that a field holds, where tensors can stand in it.
    pub(crate) fn child(self, field: u32) -> Option<Self> {
        Some(match (self, field) {
            (Self::Model, model_field::GRAPH) => Self::Graph,
            (Self::Model, model_field::TRAINING) => Self::Training,
            (Self::Model, model_field::FUNCTION) => Self::Function,
            (Self::Training, 1 | 2) => Self::Graph,
            (Self::Graph, 1) | (Self::Function, 7) => Self::Node,
            (Self::Graph, 5) | (Self::Attribute, 5 | 10) | (Self::Sparse, 1 | 2) => Self::Tensor,
            (Self::Graph, 15) | (Self::Attribute, 22 | 23) => Self::Sparse,
            (Self::Node, 5) | (Self::Function, 11) => Self::Attribute,
            (Self::Attribute, 6 | 11) => Self::Graph,
            _ => return None,
        })
    }
}
