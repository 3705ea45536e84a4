//! Tensors and ports into and out of tract.

use posenc_ir::{DType, Tensor};
use tract_onnx::pb::tensor_shape_proto::dimension::Value as DimValue;
use tract_onnx::pb::type_proto::Value as TypeValue;
use tract_onnx::pb::{GraphProto, ValueInfoProto};
use tract_onnx::prelude::{DatumType, Tensor as TractTensor, TractResult};

use super::error::{NAME, causes, failed};
use crate::backend::{Dim, Port};
use crate::convert::{elements, tensor, with_element};
use crate::error::{Result, RuntimeError};

/// The element types that tract and this crate share.
const TYPES: &[(DatumType, DType)] = &[
    (DatumType::F32, DType::F32),
    (DatumType::F64, DType::F64),
    (DatumType::F16, DType::F16),
    (DatumType::I64, DType::I64),
    (DatumType::I32, DType::I32),
    (DatumType::I16, DType::I16),
    (DatumType::I8, DType::I8),
    (DatumType::U64, DType::U64),
    (DatumType::U32, DType::U32),
    (DatumType::U16, DType::U16),
    (DatumType::U8, DType::U8),
    (DatumType::Bool, DType::Bool),
];

/// The type in tract.
pub(super) fn datum_type(dtype: DType) -> Option<DatumType> {
    TYPES.iter().find(|row| row.1 == dtype).map(|row| row.0)
}

/// The inputs that are no initializers.
pub(super) fn ports(graph: &GraphProto) -> Vec<Port> {
    let initialized = |input: &&ValueInfoProto| {
        let mut initializers = graph.initializer.iter();
        !initializers.any(|initializer| initializer.name == input.name)
    };
    graph.input.iter().filter(initialized).map(port).collect()
}

fn port(input: &ValueInfoProto) -> Port {
    let value = input.r#type.as_ref().and_then(|t| t.value.as_ref());
    let tensor = value.map(|TypeValue::TensorType(tensor)| tensor);
    let dims = tensor
        .and_then(|tensor| tensor.shape.as_ref())
        .map(|shape| {
            let dims = shape.dim.iter().map(|dim| match &dim.value {
                Some(DimValue::DimValue(size)) => {
                    usize::try_from(*size).map_or(Dim::Unknown, Dim::Fixed)
                }
                Some(DimValue::DimParam(name)) if !name.is_empty() => Dim::Symbol(name.clone()),
                _ => Dim::Unknown,
            });
            dims.collect()
        });
    Port {
        name: input.name.clone(),
        dtype: tensor.and_then(|tensor| DType::from_code(tensor.elem_type)),
        dims,
    }
}

/// A feed as a tensor of tract; its elements are copied.
pub(super) fn feed(name: &str, feed: &Tensor) -> Result<TractTensor> {
    let refused = || RuntimeError::feed(name, format!("{NAME} does not accept {}", feed.dtype()));
    let made: TractResult<TractTensor> = with_element!(feed.dtype(),
        T => TractTensor::from_shape::<T>(feed.dims(), &elements(feed)),
        bf16 => return Err(refused()),
        else => return Err(refused()));
    made.map_err(|e| failed(&e))
}

/// An output as a tensor; the symbolic integers of tract become int64.
pub(super) fn output(name: &str, value: &TractTensor) -> Result<Tensor> {
    let unread = |why: String| RuntimeError::failed(NAME, format!("output {name}: {why}"));
    let value = if value.datum_type() == DatumType::TDim {
        value.cast_to::<i64>().map_err(|e| unread(causes(&e)))?
    } else {
        std::borrow::Cow::Borrowed(value)
    };
    let unreadable = || {
        unread(format!(
            "its type {:?} is not supported",
            value.datum_type()
        ))
    };
    let known = TYPES.iter().find(|row| row.0 == value.datum_type());
    let dtype = known.ok_or_else(unreadable)?.1;
    let dims = value.shape().to_vec();
    let read: TractResult<Option<Tensor>> = with_element!(dtype,
        T => value.to_plain_array_view::<T>()
            .map(|view| tensor::<T>(dims, &view.iter().copied().collect::<Vec<T>>())),
        bf16 => return Err(unreadable()),
        else => return Err(unreadable()));
    read.map_err(|e| unread(causes(&e)))?
        .ok_or_else(|| unread("its elements do not fill its shape".to_owned()))
}
