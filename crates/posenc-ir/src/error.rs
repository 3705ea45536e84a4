//! Errors of models and patches.

use std::fmt;
use std::path::PathBuf;

/// An error of a model or patch: it cannot be read, is invalid, is not supported, or cannot be
/// applied.
///
/// Displayed as one sentence, after the place where there is one:
/// `decoder/Loop_3.body/Concat_17: attribute axis must be an integer`.
#[derive(Debug)]
pub struct Error {
    place: Option<String>,
    kind: Box<ErrorKind>,
}

/// The kinds of [`Error`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system reported an error.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// The bytes are not a protobuf message of the expected type.
    #[error("not a readable ONNX model: {0}")]
    Decode(String),
    /// The model breaks a rule of the format.
    #[error("{0}")]
    Invalid(String),
    /// The model needs something that is not supported.
    #[error("{0}")]
    Unsupported(String),
    /// The encoded model would be larger than readers of protobuf accept.
    #[error("the result would have {bytes} bytes; an ONNX file can have at most 2147483647")]
    TooLarge {
        /// Its length.
        bytes: usize,
    },
    /// A patch cannot be applied to the graph.
    #[error("{0}")]
    Patch(String),
}

/// A result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error without a place.
    pub fn new(kind: ErrorKind) -> Self {
        Self {
            place: None,
            kind: Box::new(kind),
        }
    }

    /// An error of the format.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid(message.into()))
    }

    /// An error of decoding.
    pub fn decode(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Decode(message.into()))
    }

    /// An error of a patch.
    pub fn patch(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Patch(message.into()))
    }

    /// An error of something that is not supported.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported(message.into()))
    }

    /// An error of the operating system at `path`.
    pub fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::new(ErrorKind::Io {
            path: path.into(),
            source,
        })
    }

    /// The error with a place, unless it has one already.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.place.get_or_insert_with(|| place.into());
        self
    }

    /// Whether a file does not exist.
    pub fn is_absent(&self) -> bool {
        let ErrorKind::Io { source, .. } = self.kind() else {
            return false;
        };
        source.kind() == std::io::ErrorKind::NotFound
    }

    /// The kind of error.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// The place: `graph/subgraph/node`, or a file.
    pub fn place(&self) -> Option<&str> {
        self.place.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.kind),
            None => self.kind.fmt(f),
        }
    }
}

// Without `source`: the sentence of an I/O error contains its cause already.
impl std::error::Error for Error {}
