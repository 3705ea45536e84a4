//! Tensors into and out of ONNX Runtime.

use ort::value::{DynValue, Tensor as OrtTensor, TensorElementType, ValueType};
use posenc_ir::{DType, Tensor};

use super::error::{NAME, failed};
use crate::backend::{Dim, Port};
use crate::convert::{elements, tensor, with_element};
use crate::error::{Result, RuntimeError};

/// The element types that the runtime and this crate share; others are refused.
const TYPES: &[(TensorElementType, DType)] = &[
    (TensorElementType::Float32, DType::F32),
    (TensorElementType::Float64, DType::F64),
    (TensorElementType::Float16, DType::F16),
    (TensorElementType::Bfloat16, DType::BF16),
    (TensorElementType::Int64, DType::I64),
    (TensorElementType::Int32, DType::I32),
    (TensorElementType::Int16, DType::I16),
    (TensorElementType::Int8, DType::I8),
    (TensorElementType::Uint64, DType::U64),
    (TensorElementType::Uint32, DType::U32),
    (TensorElementType::Uint16, DType::U16),
    (TensorElementType::Uint8, DType::U8),
    (TensorElementType::Bool, DType::Bool),
];

fn dtype(ty: TensorElementType) -> Option<DType> {
    TYPES.iter().find(|row| row.0 == ty).map(|row| row.1)
}

/// An input as a port.
pub(super) fn port(name: &str, ty: &ValueType) -> Port {
    let mut port = Port {
        name: name.to_owned(),
        dtype: None,
        dims: None,
    };
    if let ValueType::Tensor {
        ty,
        shape,
        dimension_symbols,
    } = ty
    {
        port.dtype = dtype(*ty);
        // A scalar and an unknown rank look alike here.
        if !shape.is_empty() {
            let dims = shape.iter().enumerate().map(|(i, size)| {
                match (usize::try_from(*size), dimension_symbols.get(i)) {
                    (Ok(size), _) => Dim::Fixed(size),
                    (Err(_), Some(symbol)) if !symbol.is_empty() => Dim::Symbol(symbol.to_string()),
                    (Err(_), _) => Dim::Unknown,
                }
            });
            port.dims = Some(dims.collect());
        }
    }
    port
}

/// A feed as a value; its elements are copied.
pub(super) fn feed(name: &str, feed: &Tensor) -> Result<DynValue> {
    let dims = feed.dims().to_vec();
    with_element!(feed.dtype(), T => value::<T>(dims, elements(feed)),
        bf16 => value::<half::bf16>(dims, elements(feed)),
        else => Err(RuntimeError::feed(name, format!("{NAME} does not accept {}", feed.dtype()))))
}

fn value<T>(dims: Vec<usize>, elements: Vec<T>) -> Result<DynValue>
where
    T: ort::value::PrimitiveTensorElementType + std::fmt::Debug + Clone + 'static,
{
    let value = OrtTensor::from_array((dims, elements)).map_err(failed)?;
    Ok(value.into_dyn())
}

/// An output as a tensor.
pub(super) fn output(name: &str, value: &DynValue) -> Result<Tensor> {
    let unreadable = || {
        let why = format!(
            "the type of output {name} is not supported: {}",
            value.dtype()
        );
        RuntimeError::unsupported(NAME, why)
    };
    let ty = value.dtype().tensor_type().ok_or_else(unreadable)?;
    let dtype = dtype(ty).ok_or_else(unreadable)?;
    let read = with_element!(dtype, T => extract::<T>(value), bf16 => extract::<half::bf16>(value),
        else => return Err(unreadable()));
    read?.ok_or_else(|| {
        RuntimeError::failed(
            NAME,
            format!("the elements of output {name} do not fill its shape"),
        )
    })
}

fn extract<T>(value: &DynValue) -> Result<Option<Tensor>>
where
    T: ort::value::PrimitiveTensorElementType + crate::convert::Element,
{
    let (shape, values) = value.try_extract_tensor::<T>().map_err(failed)?;
    let dims: Result<Vec<usize>, _> = shape.iter().map(|d| usize::try_from(*d)).collect();
    Ok(dims.ok().and_then(|dims| tensor(dims, values)))
}
