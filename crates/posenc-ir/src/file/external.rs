//! The files that external payloads stand in.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use super::{folder, map};
use crate::error::{Error, Result};
use crate::model::Model;
use crate::stored::{External, Stored};
use crate::tensor::Tensor;

/// Where the external payloads of a model are looked for, and what was mapped of them.
#[derive(Debug, Default)]
pub(crate) struct Home {
    /// The model's file.
    model: Option<PathBuf>,
    /// Whole files by location; `None` for what cannot be mapped.
    maps: Mutex<BTreeMap<String, Option<Bytes>>>,
}

impl Home {
    /// The folder of this model.
    pub(crate) fn of(model: Option<&Path>) -> Self {
        Self {
            model: model.map(Path::to_owned),
            maps: Mutex::default(),
        }
    }

    fn file(&self, external: &External) -> Result<PathBuf> {
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
        let range = within(external, length, whole.len()).ok()?;
        Tensor::new(stored.dtype?, stored.dims.clone(), whole.slice(range))
    }
}

impl Model {
    /// The regular file that an external payload stands in, links resolved. They may lead to the
    /// folder of the model as it is named, or to that of the file which the model's own link leads
    /// to: caches keep both files there.
    ///
    /// # Errors
    /// When the file is absent, no regular file, or not one that the model may name; or the model
    /// was read from bytes, of no path.
    pub fn external_file(&self, external: &External) -> Result<PathBuf> {
        self.graph.home.file(external)
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
        Ok(bytes.slice(within(external, length, bytes.len())?))
    }
}

/// The place of `length` bytes of an external payload in a file of `have` bytes.
pub(crate) fn within(external: &External, length: u64, have: usize) -> Result<Range<usize>> {
    let start = usize::try_from(external.offset).ok();
    let length = usize::try_from(length).ok();
    let end = start.zip(length).and_then(|(s, n)| s.checked_add(n));
    match start.zip(end).filter(|(_, end)| *end <= have) {
        Some((start, end)) => Ok(start..end),
        None => {
            let why = format!("has {have} bytes, less than a tensor asks for");
            Err(external.refused(&why))
        }
    }
}

impl External {
    /// The location as a path that does not leave the folder it starts in, its links aside.
    pub(crate) fn relative(&self) -> Result<&Path> {
        // Separators elsewhere, and the end of a name for the system.
        if self.location.contains(['\\', '\0']) {
            return Err(self.refused("holds a character that no portable path has"));
        }
        let path = Path::new(&self.location);
        let stays = |c| matches!(c, Component::Normal(_) | Component::CurDir);
        let names = path.components().any(|c| matches!(c, Component::Normal(_)));
        if !(names && path.components().all(stays)) {
            return Err(self.refused("leads out of the model's folder"));
        }
        Ok(path)
    }

    /// An error of this location.
    pub(crate) fn refused(&self, why: &str) -> Error {
        let location = self.location.replace(char::is_control, "?");
        Error::invalid(format!("external data {location} {why}"))
    }
}
