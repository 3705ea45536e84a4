//! External data of a model: where it is, and its bytes.

use std::path::PathBuf;

use bytes::Bytes;

use super::location::range_in;
use crate::error::Result;
use crate::model::Model;
use crate::stored::External;

impl Model {
    /// The regular file of an external payload, with symbolic links resolved. It must be in the
    /// model's folder or, where the model's path is a symbolic link, in the folder that the link
    /// leads to (caches are built like that).
    ///
    /// # Errors
    /// When the file is absent, not a regular file, or in another folder; when the model has no
    /// path.
    pub fn external_file(&self, external: &External) -> Result<PathBuf> {
        self.graph.external_dir.file(external)
    }

    /// The bytes of an external payload, mapped.
    ///
    /// # Errors
    /// As [`Model::external_file`], and when the file is too short.
    pub fn load(&self, external: &External) -> Result<Bytes> {
        let bytes = self.graph.external_dir.bytes(external)?;
        let length = external.length.unwrap_or_else(|| {
            let rest = (bytes.len() as u64).checked_sub(external.offset);
            rest.unwrap_or(0)
        });
        let range = range_in(external, length, bytes.len(), || Some(bytes.clone()))?;
        Ok(bytes.slice(range))
    }
}
