//! Memory maps of files.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Result};

/// An open regular file and its bytes.
#[derive(Debug)]
pub(crate) struct Mapped {
    pub(crate) bytes: Bytes,
    /// `None` for an empty file.
    pub(crate) map: Option<Map>,
    /// The file of the bytes, also when another file replaces it.
    pub(crate) file: File,
}

/// Maps a regular file.
pub(crate) fn map(path: &Path) -> Result<Mapped> {
    let failed = |e| Error::io(path, e);
    let file = open(path)?;
    if file.metadata().map_err(failed)?.len() == 0 {
        let bytes = Bytes::new();
        let map = None;
        return Ok(Mapped { bytes, map, file });
    }
    // Safety: the map is read only. Reads fault when another process truncates the file, which no
    // user of maps can rule out; this crate replaces files by renaming.
    #[allow(unsafe_code)]
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(failed)?;
    let map = Map(Arc::new(map));
    let bytes = Bytes::from_owner(map.clone());
    let map = Some(map);
    Ok(Mapped { bytes, map, file })
}

/// A memory map of a file.
#[derive(Clone, Debug)]
pub(crate) struct Map(Arc<memmap2::Mmap>);

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Map {
    /// Releases the pages of a range, which are read again when they are used.
    ///
    /// Reading one byte of a large tensor maps the pages around it too, megabytes where the page
    /// cache holds them in one folio.
    pub(crate) fn release(&self, range: &Range<usize>) {
        #[cfg(unix)]
        {
            let advice = memmap2::UncheckedAdvice::DontNeed;
            // Safety: the map is of a file, shared and never written to: the bytes are the same
            // when they are read again.
            #[allow(unsafe_code)]
            let done = unsafe { (self.0).unchecked_advise_range(advice, range.start, range.len()) };
            // Pages that are not released only take memory.
            let _ = done;
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}

/// Opens a regular file for reading.
///
/// The type is checked before opening, which has effects on devices and blocks on pipes, and again
/// afterwards, since another file may have got the name.
pub(super) fn open(path: &Path) -> Result<File> {
    let failed = |e| Error::io(path, e);
    let irregular = || Error::invalid("not a regular file").at(path.display().to_string());
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(irregular());
    }
    let file = non_blocking().open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(irregular());
    }
    Ok(file)
}

#[cfg(unix)]
fn non_blocking() -> OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    // The flags of `open(2)` are an int.
    options.read(true).custom_flags(flags.bits() as i32);
    options
}

#[cfg(not(unix))]
fn non_blocking() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true);
    options
}
