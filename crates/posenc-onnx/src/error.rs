//! Why a request is refused.

use posenc_encodings::param::ParameterError;

/// Why a model was not rewritten.
#[derive(Debug, thiserror::Error)]
pub enum RewriteError {
    /// The request does not fit the model, or cannot be done.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The model is broken.
    #[error(transparent)]
    Model(#[from] posenc_ir::Error),
}

/// A request that is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// There is nothing to work on.
    #[error("{0}")]
    NoSite(String),
    /// A value is missing or contradicts the model.
    #[error("{0}")]
    Usage(String),
    /// A parameter is missing or has no effect.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// The form is not supported; the site is named.
    #[error("{0}")]
    Unsupported(String),
}
