//! Errors of ONNX Runtime as errors of this crate.

use crate::error::RuntimeError;

/// The name of the runtime.
pub(super) const NAME: &str = "onnxruntime";

/// The runtime refused the model or the options.
pub(super) fn refused<R>(error: ort::Error<R>) -> RuntimeError {
    RuntimeError::unsupported(NAME, error.message())
}

/// The runtime failed during a run.
pub(super) fn failed<R>(error: ort::Error<R>) -> RuntimeError {
    RuntimeError::failed(NAME, error.message())
}
