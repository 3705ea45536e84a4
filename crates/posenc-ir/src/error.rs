//! What can be wrong with a model or a request.

use std::fmt;
use std::path::PathBuf;

/// A model that cannot be read, is invalid, or a patch that cannot be applied.
///
/// Shown as one sentence that starts with the place, where there is one:
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
    /// The operating system refused.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The bytes are no protobuf message of the expected type.
    #[error("not a readable ONNX model: {0}")]
    Decode(String),
    /// The model breaks a rule of the format.
    #[error("{0}")]
    Invalid(String),
    /// The model or request needs what is not supported.
    #[error("{0}")]
    Unsupported(String),
    /// A model would have more bytes than a file of the format can have.
    #[error("the result would have {bytes} bytes, and a single ONNX file holds 2147483647 at most")]
    TooLarge {
        /// Its length.
        bytes: usize,
    },
    /// A patch does not fit the graph.
    #[error("{0}")]
    Patch(String),
}

/// A result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error at no particular place.
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

    /// What is asked for is not supported.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported(message.into()))
    }

    /// The operating system refused `path`.
    pub fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::new(ErrorKind::Io {
            path: path.into(),
            source,
        })
    }

    /// The same error at a place; the innermost place given first stays.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.place.get_or_insert_with(|| place.into());
        self
    }

    /// Whether a file is not there.
    pub fn is_absent(&self) -> bool {
        let ErrorKind::Io { source, .. } = self.kind() else {
            return false;
        };
        source.kind() == std::io::ErrorKind::NotFound
    }

    /// What is wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// Where: `graph/subgraph/node`.
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

// The cause of an I/O error stands in the sentence, so there is no `source` to repeat it.
impl std::error::Error for Error {}
