//! Locations of external tensors: a path within the model's folder and a range of bytes.

use std::ops::Range;
use std::path::{Component, Path};

use crate::error::{Error, Result};
use crate::stored::External;

/// The place of `length` bytes of an external payload in a file of `have` bytes.
pub(crate) fn byte_range(external: &External, length: u64, have: usize) -> Result<Range<usize>> {
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
