//! Saving where there are no files to write.

use std::io::ErrorKind;
use std::path::Path;

use super::policy::{ExternalData, SaveError, Saved};
use crate::error::Error;
use crate::model::Model;

impl Model {
    /// Refuses: there are no files here. [`Model::to_bytes`] gives the bytes of the model.
    ///
    /// # Errors
    /// Always.
    pub fn save(&self, path: impl AsRef<Path>, _: ExternalData) -> Result<Saved, SaveError> {
        let why = ErrorKind::Unsupported.into();
        Err(SaveError::Write(Error::io(path.as_ref(), why)))
    }
}
