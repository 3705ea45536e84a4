//! Locations of external tensors: a path within the model's folder and a range of bytes.

use std::ops::Range;
use std::path::{Component, Path};

use crate::error::{Error, Result};
use crate::stored::External;

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
