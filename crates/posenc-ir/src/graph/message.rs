//! Types and payloads from and to messages.

use super::value::{Dim, Type};
use crate::dtype::DType;
use crate::error::Result;
use crate::proto::tensor_proto::DataLocation;
use crate::proto::{
    AttributeProto, SparseTensorProto, TensorProto, TensorShapeProto, TypeProto,
    tensor_shape_proto, type_proto,
};
use crate::stored::{Payload, Stored};

/// The payload of a `Constant` node's attribute; `None` for sparse tensors and strings.
pub(crate) fn payload_of(attribute: &AttributeProto) -> Result<Option<Stored>> {
    let raw = |dtype, dims: Vec<usize>, bytes: Vec<u8>| Stored {
        dtype: Some(dtype),
        dims,
        payload: Payload::Raw(bytes.into()),
    };
    Ok(Some(match attribute.name() {
        "value" => match &attribute.t {
            Some(t) => Stored::from_proto(t)?,
            None => return Ok(None),
        },
        "value_float" => raw(DType::F32, vec![], attribute.f().to_le_bytes().to_vec()),
        "value_int" => raw(DType::I64, vec![], attribute.i().to_le_bytes().to_vec()),
        "value_floats" => raw(
            DType::F32,
            vec![attribute.floats.len()],
            attribute
                .floats
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect(),
        ),
        "value_ints" => raw(
            DType::I64,
            vec![attribute.ints.len()],
            attribute
                .ints
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect(),
        ),
        _ => return Ok(None),
    }))
}

/// Whether a tensor of the attribute is external; its graphs are not looked at.
pub(crate) fn is_external(attribute: &AttributeProto) -> bool {
    let mut tensors = attribute.t.iter().chain(&attribute.tensors);
    let single = attribute.sparse_tensor.as_deref().into_iter();
    let mut sparse = single.chain(&attribute.sparse_tensors);
    tensors.any(is_external_tensor) || sparse.any(is_sparse_external)
}

/// Whether the values or indices of a sparse tensor are external.
pub(crate) fn is_sparse_external(tensor: &SparseTensorProto) -> bool {
    let mut tensors = tensor.values.iter().chain(&tensor.indices);
    tensors.any(is_external_tensor)
}

fn is_external_tensor(tensor: &TensorProto) -> bool {
    tensor.data_location() == DataLocation::External
}

pub(crate) fn type_of(proto: &TypeProto) -> Type {
    use tensor_shape_proto::dimension::Value as D;
    let Some(type_proto::Value::TensorType(tensor)) = &proto.value else {
        return Type::Other;
    };
    let dim = |d: &tensor_shape_proto::Dimension| match &d.value {
        Some(D::DimValue(n)) => usize::try_from(*n).map_or(Dim::Unknown, Dim::Known),
        Some(D::DimParam(s)) if !s.is_empty() => Dim::Symbol(s.as_str().into()),
        _ => Dim::Unknown,
    };
    Type::Tensor {
        dtype: DType::from_code(tensor.elem_type()),
        shape: tensor
            .shape
            .as_ref()
            .map(|s| s.dim.iter().map(dim).collect()),
    }
}

/// The message of dimensions.
pub(crate) fn shape_proto(dims: &[Dim]) -> TensorShapeProto {
    use tensor_shape_proto::{Dimension, dimension::Value as D};
    let dim = |d: &Dim| Dimension {
        denotation: None,
        value: match d {
            Dim::Known(n) => Some(D::DimValue(*n as i64)),
            Dim::Symbol(s) => Some(D::DimParam(s.to_string())),
            Dim::Unknown => None,
        },
    };
    TensorShapeProto {
        dim: dims.iter().map(dim).collect(),
    }
}

/// The message of a dense tensor's type.
pub(crate) fn tensor_type(dtype: Option<DType>, dims: Option<&[Dim]>) -> TypeProto {
    TypeProto {
        value: Some(type_proto::Value::TensorType(type_proto::Tensor {
            elem_type: dtype.map(DType::code),
            shape: dims.map(shape_proto),
        })),
        ..TypeProto::default()
    }
}

/// Whether the type contains more than [`type_of`] keeps: another type than a dense tensor, or negative
/// dimensions.
pub(crate) fn is_not_kept(proto: &TypeProto) -> bool {
    use tensor_shape_proto::dimension::Value as D;
    match &proto.value {
        Some(type_proto::Value::TensorType(tensor)) => {
            let dims = tensor.shape.iter().flat_map(|s| &s.dim);
            dims.into_iter()
                .any(|d| matches!(d.value, Some(D::DimValue(..0))))
        }
        _ => true,
    }
}
