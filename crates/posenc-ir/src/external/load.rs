//! External data of a model: where it is, and its bytes.

use std::path::PathBuf;

use bytes::Bytes;

use super::location::byte_range;
use crate::error::Result;
use crate::file::map::map;
use crate::model::Model;
use crate::stored::External;

impl Model {
    /// The regular file that an external payload stands in, links resolved. They may lead to the
    /// folder of the model as it is named, or to that of the file which the model's own link leads
    /// to: caches keep both files there.
    ///
    /// # Errors
    /// When the file is absent, no regular file, or not one that the model may name; or the model
    /// was read from bytes, of no path.
    pub fn external_file(&self, external: &External) -> Result<PathBuf> {
        self.graph.external_dir.file(external)
    }

    /// The external payload, mapped.
    ///
    /// # Errors
    /// When the file is absent, too short, or not one that the model may name.
    pub fn load(&self, external: &External) -> Result<Bytes> {
        let bytes = map(&self.external_file(external)?)?.bytes;
        let length = external.length.unwrap_or_else(|| {
            let rest = (bytes.len() as u64).checked_sub(external.offset);
            rest.unwrap_or(0)
        });
        Ok(bytes.slice(byte_range(external, length, bytes.len())?))
    }
}
