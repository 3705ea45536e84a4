//! The limit of the size of a cut.

use crate::error::{Error, Result};

/// How many bytes a cut may have.
pub(super) struct ByteLimit {
    left: usize,
    limit: usize,
}

impl ByteLimit {
    pub(super) fn new(limit: usize) -> Self {
        Self { left: limit, limit }
    }

    /// Takes `bytes` of what is left; an error names the place.
    pub(super) fn take(&mut self, bytes: usize, place: impl FnOnce() -> String) -> Result<()> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                let limit = self.limit;
                let why = format!("the cut contains more than {limit} bytes of weights and nodes");
                Err(Error::unsupported(why).at(place()))
            }
        }
    }
}
