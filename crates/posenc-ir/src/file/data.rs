//! Files of data: shared or copied, complete or not at all.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::copy::{WAYS, copy, reflink};
use super::map;
use super::new::NewFile;
use crate::error::{Error, Result};

/// Gives a file of data another name without copying it: by sharing its blocks, where the file
/// system does that, else as a second name of the same file.
///
/// # Errors
/// When `to` exists (of the kind `AlreadyExists`), or both are on file systems that share nothing.
pub(crate) fn share_as(from: &Path, to: &Path) -> Result<()> {
    let source = map::open(from)?;
    if clone(&source, to).map_err(|e| Error::io(to, e))? {
        return Ok(());
    }
    fs::hard_link(from, to).map_err(|e| Error::io(to, e))
}

/// Copies a file of data, as cheaply as the file system can; `to` appears when it is complete.
///
/// # Errors
/// When `to` exists (of the kind `AlreadyExists`), or cannot be written. Nothing is left behind
/// then.
pub(crate) fn copy_to(from: &Path, to: &Path) -> Result<()> {
    let source = map::open(from)?;
    let failed = |e| Error::io(to, e);
    if clone(&source, to).map_err(failed)? {
        return Ok(());
    }
    let copied = || {
        let meta = source.metadata()?;
        let new = NewFile::beside(to)?;
        copy(&source, 0..meta.len(), new.file(), WAYS)?;
        new.permit(&meta.permissions())?;
        new.appear(to)
    };
    copied().map_err(failed)
}

/// Whether `to` now shares the blocks of `source`.
fn clone(source: &File, to: &Path) -> io::Result<bool> {
    let new = NewFile::beside(to)?;
    if !reflink(source, new.file()) {
        return Ok(false);
    }
    new.permit(&source.metadata()?.permissions())?;
    new.appear(to).map(|()| true)
}
