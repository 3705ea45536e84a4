//! Models as Python hands them over.

use std::path::{Path, PathBuf};

use anyhow::Result;
use bytes::Bytes;
use posenc_onnx::Model;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::errors::at;

/// A model.
#[derive(FromPyObject)]
pub(crate) enum Source {
    /// The bytes of a file; those of `bytes` are read where they are.
    Bytes(PyBackedBytes),
    /// A file.
    Path(PathBuf),
}

impl Source {
    /// Reads and checks the model.
    pub(crate) fn open(self) -> Result<Model> {
        let path = self.path().map(Path::to_owned);
        let read = match self {
            Self::Path(path) => Model::open(path),
            Self::Bytes(bytes) => {
                posenc_ir::Model::from_bytes(Bytes::from_owner(bytes)).and_then(Model::checked)
            }
        };
        read.map_err(|error| at(path.as_deref(), error))
    }

    /// The file.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Bytes(_) => None,
            Self::Path(path) => Some(path),
        }
    }
}
