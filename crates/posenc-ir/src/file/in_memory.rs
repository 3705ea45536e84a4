//! Files as bytes where they cannot be mapped: they are read into memory.

use std::convert::Infallible;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use bytes::Bytes;

use crate::error::{Error, Result};

/// A file, open, and its bytes.
#[derive(Debug)]
pub(crate) struct Mapped {
    pub(crate) bytes: Bytes,
    /// Always `None` here.
    pub(crate) map: Option<Map>,
    pub(crate) file: File,
}

/// Reads a file.
pub(crate) fn map(path: &Path) -> Result<Mapped> {
    let failed = |e| Error::io(path, e);
    let mut file = File::open(path).map_err(failed)?;
    let mut bytes = vec![];
    file.read_to_end(&mut bytes).map_err(failed)?;
    Ok(Mapped {
        bytes: bytes.into(),
        map: None,
        file,
    })
}

/// The map of a file, which there is none of.
#[derive(Clone, Debug)]
pub(crate) struct Map(Infallible);

impl Map {
    /// Releases the pages of a range.
    pub(crate) fn release(&self, _: &Range<usize>) {
        match self.0 {}
    }
}
