//! Errors of the library as exceptions, by the exit codes of the command line.

use std::path::Path;

use posenc_cli::{Exit, steps};
use posenc_onnx::RewriteError;
use posenc_onnx::verify::VerifyError;
use pyo3::prelude::*;

use crate::options;

/// The module of the exceptions.
const MODULE: &str = "posenc_onnx._errors";

/// The exception for an error.
pub(crate) fn raise(py: Python<'_>, error: &anyhow::Error) -> PyErr {
    let class = match Exit::of(error) {
        _ if is_absent(error) => "NotFound",
        Exit::Difference => "CheckFailed",
        Exit::Usage => "UsageError",
        Exit::Model => "InvalidModel",
        Exit::Unsupported => "Unsupported",
        Exit::Unavailable => "ProviderUnavailable",
        Exit::Done => "Error",
    };
    let message = options::as_keywords(&steps::sentence(error));
    let raised = py
        .import(MODULE)
        .and_then(|module| module.getattr(class)?.call1((message,)));
    match raised {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// The error with its file, unless it names that already.
pub(crate) fn at(path: Option<&Path>, error: impl Into<anyhow::Error>) -> anyhow::Error {
    let error = error.into();
    let Some(path) = path.map(|path| path.display().to_string()) else {
        return error;
    };
    match steps::sentence(&error).starts_with(&path) {
        true => error,
        false => error.context(path),
    }
}

/// Whether a file does not exist: the model, or one that holds tensors of it.
fn is_absent(error: &anyhow::Error) -> bool {
    let cause = |cause: &(dyn std::error::Error + 'static)| {
        let own = cause.downcast_ref::<posenc_ir::Error>();
        let rewrite = cause.downcast_ref().and_then(|error| match error {
            RewriteError::Model(error) => Some(error),
            _ => None,
        });
        let verify = cause.downcast_ref().and_then(|error| match error {
            VerifyError::Model(error) => Some(error),
            _ => None,
        });
        let error = own.or(rewrite).or(verify);
        error.is_some_and(posenc_ir::Error::is_absent)
    };
    error.chain().any(cause)
}
