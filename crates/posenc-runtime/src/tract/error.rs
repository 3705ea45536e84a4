//! Errors of tract as errors of this crate.

use tract_onnx::prelude::TractError;

use crate::error::RuntimeError;

/// The name of the runtime.
pub(super) const NAME: &str = "tract";

/// tract refused the model, at load or for the shapes of a run.
pub(super) fn refused(error: &TractError) -> RuntimeError {
    RuntimeError::unsupported(NAME, causes(error))
}

/// tract failed during a run.
pub(super) fn failed(error: &TractError) -> RuntimeError {
    RuntimeError::failed(NAME, causes(error))
}

/// An error with its causes, outermost first.
pub(super) fn causes(error: &TractError) -> String {
    let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
    causes.join(": ")
}
