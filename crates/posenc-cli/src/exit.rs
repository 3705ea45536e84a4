//! Exit codes, and errors that carry one.

use std::fmt;
use std::io;
use std::process::ExitCode;

use posenc_encodings::laws::ScalingError;
use posenc_ir::ErrorKind;
use posenc_onnx::request::RopeScalingError;
use posenc_onnx::request::hf_config::HfConfigError;
use posenc_onnx::verify::{Reason, VerifyError};
use posenc_onnx::{Refusal, RefusalKind, RewriteError};
use posenc_runtime::RuntimeError;

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The request was carried out.
    Done = 0,
    /// A check found a difference, or there was nothing to work on.
    Difference = 1,
    /// The command line is wrong or lacks a value.
    Usage = 2,
    /// The model cannot be read or is invalid.
    Model = 3,
    /// A form that is not supported.
    Unsupported = 4,
    /// The requested runtime or execution provider is not available.
    Unavailable = 5,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error of the command line itself: a sentence, and how the process ends.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    sentence: String,
}

impl Failure {
    /// The command line is wrong.
    pub fn usage(sentence: impl Into<String>) -> Self {
        Self {
            exit: Exit::Usage,
            sentence: sentence.into(),
        }
    }

    /// There is nothing to work on.
    pub(crate) fn nothing(sentence: impl Into<String>) -> Self {
        Self {
            exit: Exit::Difference,
            sentence: sentence.into(),
        }
    }

    /// The model lacks something.
    pub(crate) fn model(sentence: impl Into<String>) -> Self {
        Self {
            exit: Exit::Model,
            sentence: sentence.into(),
        }
    }

    /// The request is not supported.
    pub(crate) fn unsupported(sentence: impl Into<String>) -> Self {
        Self {
            exit: Exit::Unsupported,
            sentence: sentence.into(),
        }
    }

    /// The same exit code as `cause`, with a sentence that names the file.
    pub(crate) fn of_file(file: &str, cause: &anyhow::Error) -> Self {
        let sentence = sentence(cause);
        Self {
            exit: Exit::of(cause),
            sentence: if sentence.starts_with(file) {
                sentence
            } else {
                format!("{file}: {sentence}")
            },
        }
    }

    /// The same exit code as `cause`, with its sentence in other words.
    pub(crate) fn reworded(cause: &anyhow::Error, reword: impl FnOnce(String) -> String) -> Self {
        Self {
            exit: Exit::of(cause),
            sentence: reword(sentence(cause)),
        }
    }

    /// The same exit code as `cause`, with a note after its sentence.
    pub(crate) fn with_note(cause: &anyhow::Error, note: &str) -> Self {
        Self {
            exit: Exit::of(cause),
            sentence: format!("{}; {note}", sentence(cause)),
        }
    }
}

/// An error with its causes, each once: some of them say what caused them.
pub fn sentence(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Failure {}

impl Exit {
    /// How the process ends after this error.
    pub fn of(error: &anyhow::Error) -> Self {
        error
            .chain()
            .find_map(Self::of_cause)
            .unwrap_or(Self::Model)
    }

    /// The one that says more: what could not be read counts more than what differs.
    pub(crate) fn or_worse(self, other: Self) -> Self {
        if other as u8 > self as u8 {
            other
        } else {
            self
        }
    }

    fn of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<Self> {
        if let Some(failure) = cause.downcast_ref::<Failure>() {
            return Some(failure.exit);
        }
        if let Some(error) = cause.downcast_ref::<posenc_ir::Error>() {
            return Some(Self::of_model(error));
        }
        if let Some(error) = cause.downcast_ref::<RewriteError>() {
            return Some(match error {
                RewriteError::Refused(refusal) => Self::of_refusal(refusal),
                RewriteError::Model(error) => Self::of_model(error),
                // The model itself is valid.
                RewriteError::Result(_) => Self::Unsupported,
                _ => Self::Unsupported,
            });
        }
        if let Some(error) = cause.downcast_ref::<VerifyError>() {
            return Some(match error.reason() {
                Reason::Unavailable => Self::Unavailable,
                Reason::Unsupported => Self::Unsupported,
                Reason::Model => Self::Model,
                Reason::Option => Self::Usage,
            });
        }
        if let Some(error) = cause.downcast_ref::<RuntimeError>() {
            return Some(match error {
                RuntimeError::Unavailable { .. } => Self::Unavailable,
                RuntimeError::Feed { .. } | RuntimeError::Output { .. } => Self::Usage,
                _ => Self::Unsupported,
            });
        }
        if let Some(error) = cause.downcast_ref::<HfConfigError>() {
            return Some(match error {
                HfConfigError::NotSupported { .. } => Self::Unsupported,
                _ => Self::Usage,
            });
        }
        let usage = cause.is::<RopeScalingError>() || cause.is::<ScalingError>();
        usage.then_some(Self::Usage)
    }

    fn of_refusal(refusal: &Refusal) -> Self {
        match refusal.kind() {
            RefusalKind::NoSite => Self::Difference,
            RefusalKind::MissingParameter(_)
            | RefusalKind::InvalidParameter
            | RefusalKind::NoEffect(_)
            | RefusalKind::AlreadyScaled => Self::Usage,
            _ => Self::Unsupported,
        }
    }

    fn of_model(error: &posenc_ir::Error) -> Self {
        match error.kind() {
            ErrorKind::Unsupported(_) => Self::Unsupported,
            _ => Self::Model,
        }
    }

    /// Whether whoever read the output has gone away, which is no error.
    pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
        let io = |cause: &(dyn std::error::Error + 'static)| {
            cause
                .downcast_ref::<io::Error>()
                .map(|e| e.kind() == io::ErrorKind::BrokenPipe)
        };
        error.chain().find_map(io).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_error_has_its_exit_code() {
        let scaling = ScalingError::BelowOne {
            name: "factor",
            value: 0.5,
        };
        let missing = io::Error::from(io::ErrorKind::NotFound);
        let refused = |kind| anyhow::Error::from(RewriteError::from(Refusal::new(kind, "no")));
        let cases: [(anyhow::Error, Exit); 15] = [
            (refused(RefusalKind::NoSite), Exit::Difference),
            (refused(RefusalKind::MissingParameter("theta")), Exit::Usage),
            (refused(RefusalKind::InvalidParameter), Exit::Usage),
            (refused(RefusalKind::AlreadyScaled), Exit::Usage),
            (refused(RefusalKind::NoEffect("slopes")), Exit::Usage),
            (
                refused(RefusalKind::UnsupportedOption("form")),
                Exit::Unsupported,
            ),
            (refused(RefusalKind::Unsupported), Exit::Unsupported),
            (Failure::usage("no").into(), Exit::Usage),
            (posenc_ir::Error::decode("no").into(), Exit::Model),
            (posenc_ir::Error::invalid("no").into(), Exit::Model),
            (posenc_ir::Error::io("m.onnx", missing).into(), Exit::Model),
            (
                posenc_ir::Error::unsupported("no").into(),
                Exit::Unsupported,
            ),
            (scaling.clone().into(), Exit::Usage),
            (RopeScalingError::from(scaling).into(), Exit::Usage),
            (
                RuntimeError::unavailable("cuda", "no").into(),
                Exit::Unavailable,
            ),
        ];
        for (error, want) in cases {
            assert_eq!(Exit::of(&error), want, "{error}");
            let wrapped: anyhow::Error = Failure::of_file("m.onnx", &error).into();
            assert_eq!(Exit::of(&wrapped), want, "{error} with its file");
        }
    }

    #[test]
    fn a_cause_is_said_once() {
        let cause = RuntimeError::failed("tract", "no");
        let error = anyhow::Error::from(VerifyError::Runtime {
            site: "a".to_owned(),
            source: cause,
        });
        assert_eq!(sentence(&error), "a: tract failed: no");
        assert_eq!(sentence(&error.context("b")), "b: a: tract failed: no");
    }

    #[test]
    fn the_file_is_named_once() {
        let named = posenc_ir::Error::invalid("no").at("m.onnx").into();
        assert_eq!(Failure::of_file("m.onnx", &named).to_string(), "m.onnx: no");
        let inner = posenc_ir::Error::invalid("no").at("g/Add_1").into();
        assert_eq!(
            Failure::of_file("m.onnx", &inner).to_string(),
            "m.onnx: g/Add_1: no"
        );
    }

    #[test]
    fn only_a_closed_pipe_is_one() {
        let of = |kind| Exit::is_closed_pipe(&io::Error::from(kind).into());
        assert!(of(io::ErrorKind::BrokenPipe));
        assert!(!of(io::ErrorKind::NotFound));
        assert!(!Exit::is_closed_pipe(&Failure::usage("no").into()));
    }
}
