//! What happens to external data when a model is saved.

#[cfg(not(target_family = "wasm"))]
use std::io;
use std::path::PathBuf;

use crate::error::Error;

/// What happens to the files with external data when a model is saved with
/// [`Model::save`](crate::Model::save).
///
/// A model names its files of external data by paths within its own folder. A model that is saved
/// in place of the file that it was read from keeps them, unless they are embedded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ExternalData {
    /// [`Keep`](Self::Keep) in the folder of the input, else [`Copy`](Self::Copy). Data that the
    /// input names by a symbolic link is copied there too: readers refuse such links.
    #[default]
    Auto,
    /// The saved model names the files that the input names. Only within the folder of the input.
    Keep,
    /// Give the files a second name (hard link). Some readers, as recent versions of `onnx`,
    /// refuse data with several names, also where the input names it.
    Link,
    /// Copy the files: by sharing their blocks (reflink) where the file system can.
    Copy,
    /// Store the tensors in the model itself, which may have at most 2³¹ − 1 bytes then.
    Inline,
}

/// What saving a model has created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Saved {
    /// New files of external data and the new folders around them, in the order in which they were
    /// created. Files that were there before with the same content are not listed.
    pub created: Vec<PathBuf>,
    /// Files of external data that are hard links of the input's, or were before.
    pub linked: Vec<PathBuf>,
}

/// Why a model was not saved. The output is unchanged then, and no new file is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SaveError {
    /// The model cannot be encoded, or its external data cannot be read.
    #[error(transparent)]
    Model(#[from] Error),
    /// Writing failed, or the file would be too large
    /// ([`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge)).
    #[error(transparent)]
    Write(Error),
    /// A file exists at the path, or the path is outside the folder.
    #[error("{}: {problem}", path.display())]
    Place {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        problem: PlaceProblem,
    },
}

/// What is wrong with a file or folder of [`SaveError::Place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceProblem {
    /// The output would replace a file of the model's external data, or take its name.
    #[error("the model's external data is stored there")]
    IsExternalData,
    /// [`ExternalData::Keep`] for an output from which the external data is out of reach.
    #[error("external data can only be kept for an output in the folder of the input")]
    OtherFolder,
    /// A file of external data would replace another file.
    #[error("already exists with different content")]
    Exists,
    /// [`ExternalData::Link`] for a file that the file system cannot share with the output's
    /// folder.
    #[error("cannot be linked to the output's folder")]
    NotLinkable,
    /// The output is a link into another folder, from which a model reaches other files.
    #[error("leads into another folder, in which the external data has no place")]
    LinkedOutput,
    /// A folder for external data is a link that leads out of the output's folder.
    #[error("leads out of the output's folder")]
    OutsideFolder,
}

#[cfg(not(target_family = "wasm"))]
impl SaveError {
    pub(super) fn place(path: impl Into<PathBuf>, problem: PlaceProblem) -> Self {
        Self::Place {
            path: path.into(),
            problem,
        }
    }

    pub(super) fn io(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Write(Error::io(path, source))
    }
}
