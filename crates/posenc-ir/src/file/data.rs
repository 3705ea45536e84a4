//! Linking and copying files of external data.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::copy::{METHODS, copy, reflink};
use super::map;
use super::new::NewFile;
use crate::error::{Error, Result};

/// Gives a file a second name (hard link).
///
/// # Errors
/// When `to` exists (`AlreadyExists`) or the file system cannot.
pub(crate) fn link_as(from: &Path, to: &Path) -> Result<()> {
    map::open(from)?;
    fs::hard_link(from, to).map_err(|e| Error::io(to, e))
}

/// Copies a file, by sharing its blocks where the file system can (reflink); `to` appears when it is
/// complete.
///
/// # Errors
/// When `to` exists (`AlreadyExists`) or cannot be written. No partial file is left.
pub fn copy_to(from: &Path, to: &Path) -> Result<()> {
    let source = map::open(from)?;
    let failed = |e| Error::io(to, e);
    if clone(&source, to).map_err(failed)? {
        return Ok(());
    }
    let copied = || {
        let meta = source.metadata()?;
        let new = NewFile::in_folder_of(to)?;
        copy(&source, 0..meta.len(), new.file(), METHODS)?;
        new.copy_permissions(&meta.permissions())?;
        new.create(to)
    };
    copied().map_err(failed)
}

/// Creates `to` with the blocks of `source`; `false` where the file system cannot.
fn clone(source: &File, to: &Path) -> io::Result<bool> {
    let new = NewFile::in_folder_of(to)?;
    if !reflink(source, new.file()) {
        return Ok(false);
    }
    new.copy_permissions(&source.metadata()?.permissions())?;
    new.create(to).map(|()| true)
}
