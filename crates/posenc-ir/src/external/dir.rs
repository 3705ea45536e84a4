//! The files in which external tensors are stored.

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

/// Where the external payloads of a model are looked for, and what was mapped of them.
#[derive(Debug, Default)]
pub(crate) struct ExternalDir {
    /// The model's file.
    model: Option<PathBuf>,
    /// Whole files by location; `None` for what cannot be mapped.
    maps: Mutex<BTreeMap<String, Option<Bytes>>>,
}

impl ExternalDir {
    /// The folder of this model.
    pub(crate) fn of(model: Option<&Path>) -> Self {
        Self {
            model: model.map(Path::to_owned),
            maps: Mutex::default(),
        }
    }

    pub(crate) fn file(&self, external: &External) -> Result<PathBuf> {
        let location = external.relative()?;
        let Some(model) = &self.model else {
            let why = "its external data is not to be found: the folder of the model is not known";
            return Err(Error::invalid(why));
        };
        let path = folder(model).join(location);
        let resolve = |p: &Path| p.canonicalize().map_err(|e| Error::io(p, e));
        let file = resolve(&path)?;
        let mut folders = vec![resolve(folder(model))?];
        // A model that is gone meanwhile has no link to follow.
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

    /// The tensor that stands there; `None` where it cannot be had.
    pub(crate) fn tensor(&self, external: &External, stored: &Stored) -> Option<Tensor> {
        let length = external.expect(stored).ok()?;
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
