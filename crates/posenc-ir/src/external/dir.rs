//! Where external tensors are stored: a folder, or memory.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use super::location::byte_range;
use crate::error::{Error, Result};
use crate::file::folder;
use crate::file::map::map;
use crate::stored::{External, Stored};
use crate::tensor::Tensor;

/// Where the external data of a model is: in the folder of its file, or in memory.
#[derive(Debug, Default)]
pub(crate) struct ExternalDir {
    /// The model's file.
    model: Option<PathBuf>,
    /// The files of external data in memory, by path; no folder is looked at then.
    given: Option<BTreeMap<PathBuf, Bytes>>,
    /// Mapped files by location; `None` for files that cannot be mapped.
    maps: Mutex<BTreeMap<String, Option<Bytes>>>,
}

impl ExternalDir {
    /// The folder of the model in this file.
    pub(crate) fn of(model: Option<&Path>) -> Self {
        Self {
            model: model.map(Path::to_owned),
            ..Self::default()
        }
    }

    /// The files that are given in memory, by path.
    pub(crate) fn given(model: &Path, files: BTreeMap<PathBuf, Bytes>) -> Self {
        Self {
            model: Some(model.to_owned()),
            given: Some(files),
            ..Self::default()
        }
    }

    /// The bytes of a file in memory; `None` where files are looked up in the folder.
    fn in_memory(&self, external: &External) -> Option<Result<Bytes>> {
        let given = self.given.as_ref()?;
        let bytes = external.relative().and_then(|location| {
            // Without `.` between separators.
            let location: PathBuf = location.components().filter(is_name).collect();
            let absent = || Error::io(&location, ErrorKind::NotFound.into());
            given.get(&location).cloned().ok_or_else(absent)
        });
        Some(bytes)
    }

    /// The number of bytes of the file of an external payload.
    pub(crate) fn length(&self, external: &External) -> Result<u64> {
        if let Some(bytes) = self.in_memory(external) {
            return Ok(bytes?.len() as u64);
        }
        let path = self.file(external)?;
        let meta = std::fs::metadata(&path).map_err(|e| Error::io(&path, e))?;
        Ok(meta.len())
    }

    /// The file of an external payload, mapped.
    pub(crate) fn bytes(&self, external: &External) -> Result<Bytes> {
        match self.in_memory(external) {
            Some(bytes) => bytes,
            None => Ok(map(&self.file(external)?)?.bytes),
        }
    }

    /// The file of an external payload; see [`Model::external_file`](crate::Model::external_file).
    pub(crate) fn file(&self, external: &External) -> Result<PathBuf> {
        let location = external.relative()?;
        if self.given.is_some() {
            return Err(external.refused("is in memory and in no file"));
        }
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
                let whole = self.bytes(external).ok();
                maps.insert(external.location.clone(), whole.clone());
                whole
            }
        }?;
        let range = byte_range(external, length, whole.len()).ok()?;
        Tensor::new(stored.dtype?, stored.dims.clone(), whole.slice(range))
    }
}

fn is_name(part: &Component<'_>) -> bool {
    matches!(part, Component::Normal(_))
}
