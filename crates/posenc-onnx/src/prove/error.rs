//! Why a verification has no result.

use posenc_runtime::RuntimeError;

/// Why a verification has no result, as one sentence. A difference between numbers is a result: it
/// is in the report.
///
/// ```
/// # use posenc_onnx::{Model, verify::{VerifyError, VerifyOptions, verify}};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let error = verify(model.as_ir(), None, &VerifyOptions::default(), &[]).unwrap_err();
/// assert!(matches!(error, VerifyError::Runtime { .. }), "{error}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The runtime failed at a site or in a run.
    #[error("{site}: {source}")]
    Runtime {
        /// The site, or the run.
        site: String,
        /// The runtime's error.
        source: RuntimeError,
    },
    /// The request, or the form of a site, is not supported.
    #[error("{site}: {why}")]
    Unsupported {
        /// The site, or the run.
        site: String,
        /// Why.
        why: String,
    },
    /// An option does not fit the model.
    #[error("{site}: {why}")]
    Option {
        /// The option, or the part of the model that it does not fit.
        site: String,
        /// Why.
        why: String,
    },
    /// The model is invalid or cannot be read.
    #[error(transparent)]
    Model(#[from] posenc_ir::Error),
}

/// The reasons that a script can distinguish.
///
/// ```
/// # use posenc_onnx::{Model, verify::{Reason, VerifyOptions, verify}};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let error = verify(model.as_ir(), None, &VerifyOptions::default(), &[]).unwrap_err();
/// let status = match error.reason() {
///     Reason::Model => 1,
///     Reason::Unsupported => 2,
///     Reason::Unavailable => 3,
///     Reason::Option => 4,
/// };
/// assert_eq!(status, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The runtime or its execution provider is not available.
    Unavailable,
    /// A form or a request that is not supported.
    Unsupported,
    /// The model cannot be read or is invalid.
    Model,
    /// An option does not fit the model.
    Option,
}

impl VerifyError {
    /// The error of a runtime at a site or in a run.
    pub(crate) fn runtime(site: impl Into<String>, source: RuntimeError) -> Self {
        Self::Runtime {
            site: site.into(),
            source,
        }
    }

    /// Something that is not supported at a site or in a run.
    pub(crate) fn unsupported(site: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Unsupported {
            site: site.into(),
            why: why.into(),
        }
    }

    /// An option that does not fit the model.
    pub(crate) fn option(site: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Option {
            site: site.into(),
            why: why.into(),
        }
    }

    /// The same error, with words before its site that say which of two models it is in.
    pub(crate) fn of_model(mut self, words: &str) -> Self {
        if let Self::Runtime { site, .. } | Self::Unsupported { site, .. } = &mut self {
            site.insert_str(0, words);
        }
        self
    }

    /// Which of the reasons this is.
    ///
    /// ```
    /// # use posenc_onnx::{Model, verify::{Reason, VerifyOptions, verify}};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let error = verify(model.as_ir(), None, &VerifyOptions::default(), &[]).unwrap_err();
    /// assert_eq!(error.reason(), Reason::Unavailable);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reason(&self) -> Reason {
        match self {
            Self::Runtime {
                source: RuntimeError::Unavailable { .. },
                ..
            } => Reason::Unavailable,
            Self::Runtime { .. } | Self::Unsupported { .. } => Reason::Unsupported,
            Self::Option { .. } => Reason::Option,
            Self::Model(error) => match error.kind() {
                posenc_ir::ErrorKind::Unsupported(_) => Reason::Unsupported,
                _ => Reason::Model,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_a_reason() {
        let cases = [
            (
                VerifyError::runtime("a", RuntimeError::unavailable("cuda", "no driver")),
                Reason::Unavailable,
                "a: cuda is not available: no driver",
            ),
            (
                VerifyError::runtime("a", RuntimeError::failed("tract", "no")),
                Reason::Unsupported,
                "a: tract failed: no",
            ),
            (
                VerifyError::unsupported("a", "no"),
                Reason::Unsupported,
                "a: no",
            ),
            (VerifyError::option("a", "no"), Reason::Option, "a: no"),
            (
                posenc_ir::Error::invalid("no graph").into(),
                Reason::Model,
                "no graph",
            ),
            (
                posenc_ir::Error::unsupported("sparse").into(),
                Reason::Unsupported,
                "sparse",
            ),
        ];
        for (error, reason, words) in cases {
            assert_eq!(error.reason(), reason, "{words}");
            assert_eq!(error.to_string(), words);
        }
    }
}
