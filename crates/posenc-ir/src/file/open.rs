//! Reading models from files.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::map::{Mapped, map};
use crate::error::Result;
use crate::model::Model;

impl Model {
    /// Maps a file and reads it as a model; no tensor is copied. External data is looked up in the
    /// folder of the file when it is needed.
    ///
    /// # Errors
    /// When the file cannot be opened, is not a regular file, or is not a model.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let Mapped { bytes, map, file } = map(path)?;
        let passed = |range: &Range<usize>| {
            if let Some(map) = &map {
                map.release(range);
            }
        };
        let model = Self::read(bytes, Some(path), &passed);
        let mut model = model.map_err(|e| e.at(path.display().to_string()))?;
        model.file = Some(Arc::new(file));
        model.map = map;
        Ok(model)
    }
}
