//! Writing small files where there are none.

use std::io::ErrorKind;
use std::path::Path;

use crate::error::{Error, Result};

/// Refuses: there are no files here.
///
/// # Errors
/// Always.
pub fn write_file(path: impl AsRef<Path>, _: &[u8]) -> Result<()> {
    Err(Error::io(path.as_ref(), ErrorKind::Unsupported.into()))
}

/// Refuses: there are no files here.
///
/// # Errors
/// Always.
pub fn copy_to(_: &Path, to: &Path) -> Result<()> {
    Err(Error::io(to, ErrorKind::Unsupported.into()))
}
