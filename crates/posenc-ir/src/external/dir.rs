//! The folder in which external tensors are stored.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use super::location::byte_range;
use crate::error::{Error, Result};
use crate::file::folder;
use crate::file::map::map;
use crate::stored::{External, Stored};
use crate::tensor::Tensor;

/// The folder of a model, and the files of external data that were mapped.
#[derive(Debug, Default)]
pub(crate) struct ExternalDir {
    /// The model's file.
    model: Option<PathBuf>,
    /// Mapped files by location; `None` for files that cannot be mapped.
    maps: Mutex<BTreeMap<String, Option<Bytes>>>,
}

impl ExternalDir {
    /// The folder of the model in this file.
    pub(crate) fn of(model: Option<&Path>) -> Self {
        Self {
            model: model.map(Path::to_owned),
            maps: Mutex::default(),
        }
    }

    /// The file of an external payload; see [`Model::external_file`](crate::Model::external_file).
    pub(crate) fn file(&self, external: &External) -> Result<PathBuf> {
        let location = external.relative()?;
        let Some(model) = &self.model else {
            let why = "its external data cannot be found: the model has no path";
            return Err(Error::invalid(why));
        };
        let path = folder(model).join(location);
        let resolve = |p: &Path| p.canonicalize().map_err(|e| Error::io(p, e));
        let file = resolve(&path)?;
        let mut folders = vec![resolve(folder(model))?];
        // Where the model is a symbolic link, the folder that it leads to is allowed too.
        folders.extend(
            resolve(model)
                .ok()
                .and_then(|m| Some(m.parent()?.to_owned())),
        );
        if !folders.iter().any(|folder| file.starts_with(folder)) {
            return Err(external.refused("leads out of the model's folder"));
        }
        match std::fs::metadata(&file) {
            Ok(meta) if meta.is_file() => Ok(file),
            Ok(_) => Err(Error::invalid("not a regular file").at(path.display().to_string())),
            Err(e) => Err(Error::io(path, e)),
        }
    }

    /// The tensor, mapped; `None` where it cannot be read.
    pub(crate) fn tensor(&self, external: &External, stored: &Stored) -> Option<Tensor> {
        let length = external.expected_length(stored).ok()?;
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = match maps.get(&external.location) {
            Some(whole) => whole.clone(),
            None => {
                let whole = self.file(external).and_then(|path| map(&path));
                let whole = whole.ok().map(|mapped| mapped.bytes);
                maps.insert(external.location.clone(), whole.clone());
                whole
            }
        }?;
        let range = byte_range(external, length, whole.len()).ok()?;
        Tensor::new(stored.dtype?, stored.dims.clone(), whole.slice(range))
    }
}
