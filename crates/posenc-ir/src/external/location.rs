//! Locations of external tensors: a path within the model's folder and a range of bytes.

use std::ops::Range;
use std::path::{Component, Path};

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::stored::External;

/// How the file begins that Git LFS leaves in place of a large one.
pub(crate) const LFS: &[u8] = b"version https://git-lfs";

/// What is wrong with such a file.
pub(crate) const IS_LFS: &str = "it is a Git LFS pointer; fetch the file with `git lfs pull`";

/// The most bytes of such a file.
const MOST_OF_LFS: usize = 1024;

/// The range of an external payload of `length` bytes in a file, of which `bytes` are read to say why it is short.
pub(crate) fn range_in(
    external: &External,
    length: u64,
    have: usize,
    bytes: impl FnOnce() -> Option<Bytes>,
) -> Result<Range<usize>> {
    byte_range(external, length, have).map_err(|error| {
        let is_pointer = || bytes().is_some_and(|bytes| bytes.starts_with(LFS));
        match have <= MOST_OF_LFS && is_pointer() {
            true => external.refused(&format!("is no data: {IS_LFS}")),
            false => error,
        }
    })
}

/// The range of an external payload of `length` bytes in a file of `have` bytes.
pub(crate) fn byte_range(external: &External, length: u64, have: usize) -> Result<Range<usize>> {
    let start = usize::try_from(external.offset).ok();
    let length = usize::try_from(length).ok();
    let end = start.zip(length).and_then(|(s, n)| s.checked_add(n));
    match start.zip(end).filter(|(_, end)| *end <= have) {
        Some((start, end)) => Ok(start..end),
        None => {
            let why = format!("has {have} bytes, fewer than a tensor needs");
            Err(external.refused(&why))
        }
    }
}

impl External {
    /// The location as a relative path without `..`.
    pub(crate) fn relative(&self) -> Result<&Path> {
        // Separators on other systems, and the end of a name for the operating system.
        if self.location.contains(['\\', '\0']) {
            return Err(self.refused("contains a character that portable paths cannot have"));
        }
        let path = Path::new(&self.location);
        let stays = |c| matches!(c, Component::Normal(_) | Component::CurDir);
        let names = path.components().any(|c| matches!(c, Component::Normal(_)));
        if !(names && path.components().all(stays)) {
            return Err(self.refused("leads out of the model's folder"));
        }
        Ok(path)
    }

    /// An error that names the location.
    pub(crate) fn refused(&self, why: &str) -> Error {
        let location = self.location.replace(char::is_control, "?");
        Error::invalid(format!("external data {location} {why}"))
    }
}
