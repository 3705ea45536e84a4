//! Arrays of NumPy as tensors.

use anyhow::{Context, Result};
use posenc_cli::steps::Failure;
use posenc_ir::{DType, Tensor};
use posenc_onnx::request::Tensors;
use pyo3::pybacked::PyBackedBytes;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, serialize};

/// An array: its name, the name of its type, its shape, and its elements with the last axis as the
/// fastest.
pub(crate) type Array = (String, String, Vec<usize>, PyBackedBytes);

/// Learned values as the request takes them.
///
/// # Errors
/// When an array has a type that learned values do not have.
pub(crate) fn learned(arrays: &[Array]) -> Result<Tensors> {
    let mut views = vec![];
    for (name, dtype, shape, data) in arrays {
        let dtype = match dtype.as_str() {
            "float16" => Dtype::F16,
            "bfloat16" => Dtype::BF16,
            "float32" => Dtype::F32,
            other => {
                let why = format!("params[{name:?}] has the type {other}, and no floats");
                return Err(Failure::usage(why).into());
            }
        };
        views.push((name, TensorView::new(dtype, shape.clone(), data)?));
    }
    let bytes = serialize(views, None).context("params")?;
    Ok(Tensors::from_bytes("params", bytes))
}

/// An array as an input of a model.
///
/// # Errors
/// When its type is none of numbers.
pub(crate) fn input(array: &Array) -> Result<(String, Tensor)> {
    let (name, dtype, shape, data) = array;
    let refused = |why: String| Failure::usage(format!("inputs[{name:?}] {why}"));
    let known = match dtype.as_str() {
        "float16" => DType::F16,
        "bfloat16" => DType::BF16,
        "float32" => DType::F32,
        "float64" => DType::F64,
        "int8" => DType::I8,
        "int16" => DType::I16,
        "int32" => DType::I32,
        "int64" => DType::I64,
        "uint8" => DType::U8,
        "uint16" => DType::U16,
        "uint32" => DType::U32,
        "uint64" => DType::U64,
        "bool" => DType::Bool,
        other => return Err(refused(format!("has the type {other}, and no numbers")).into()),
    };
    let tensor = Tensor::new(known, shape.clone(), data.to_vec().into());
    let tensor = tensor.ok_or_else(|| refused("has another size than its shape".to_owned()))?;
    Ok((name.clone(), tensor))
}
