//! Which fields of an attribute have values.

use super::AttributeProto;
use super::attribute_proto::AttributeType;

impl AttributeProto {
    /// The types of the fields with values. Most attributes have one; some exporters write unused
    /// scalars too, and zeros and empty lists may be omitted.
    pub(crate) fn filled(&self) -> impl Iterator<Item = AttributeType> {
        let fields = [
            (self.f.is_some(), AttributeType::Float),
            (self.i.is_some(), AttributeType::Int),
            (self.s.is_some(), AttributeType::String),
            (self.t.is_some(), AttributeType::Tensor),
            (self.g.is_some(), AttributeType::Graph),
            (!self.floats.is_empty(), AttributeType::Floats),
            (!self.ints.is_empty(), AttributeType::Ints),
            (!self.strings.is_empty(), AttributeType::Strings),
            (!self.tensors.is_empty(), AttributeType::Tensors),
            (self.sparse_tensor.is_some(), AttributeType::SparseTensor),
            (
                !self.sparse_tensors.is_empty(),
                AttributeType::SparseTensors,
            ),
            (self.tp.is_some(), AttributeType::TypeProto),
            (!self.type_protos.is_empty(), AttributeType::TypeProtos),
        ];
        let filled = fields.into_iter().filter(|(is_filled, _)| *is_filled);
        filled.map(|(_, ty)| ty)
    }
}
