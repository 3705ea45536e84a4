//! Placing files of external data in the folder of an output.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use super::policy::{PlaceProblem, SaveError};
use crate::error::{Error, ErrorKind};
use crate::file::{copy_to, link_as};

/// How a file gets to another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Link,
    Copy,
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was placed.
    Placed,
    /// A file with the same content was there before.
    Present,
    /// Something else has its place, or a file that readers refuse.
    Occupied,
}

/// What was placed.
#[derive(Debug, Default)]
pub(super) struct Placed {
    /// The folders and files that were created, in this order.
    pub(super) created: Vec<PathBuf>,
    /// The files that are hard links of others.
    pub(super) linked: Vec<PathBuf>,
}

impl Placed {
    /// Removes everything that was created, as far as possible.
    pub(super) fn remove(&self) {
        for path in self.created.iter().rev() {
            let _ = if path.is_dir() {
                fs::remove_dir(path)
            } else {
                fs::remove_file(path)
            };
        }
    }

    /// Puts the content of `from` at `location` in `folder`, unless something is there.
    pub(super) fn put(
        &mut self,
        from: &Path,
        folder: &Path,
        location: &str,
        method: Method,
    ) -> Result<Outcome, SaveError> {
        let to = folder.join(location);
        self.create_folders(folder, &to)?;
        let outcome = if to.symlink_metadata().is_ok() {
            compare(from, &to, folder, method)
        } else {
            match link_or_copy(from, &to, method) {
                Ok(()) => {
                    self.created.push(to.clone());
                    Outcome::Placed
                }
                // Another process created it in the meantime.
                Err(SaveError::Write(e)) if already_exists(&e) => {
                    compare(from, &to, folder, method)
                }
                Err(e) => return Err(e),
            }
        };
        if method == Method::Link && outcome != Outcome::Occupied {
            self.linked.push(to);
        }
        Ok(outcome)
    }

    /// Creates the folders between `folder` and a file in it, which must not lead elsewhere.
    fn create_folders(&mut self, folder: &Path, file: &Path) -> Result<(), SaveError> {
        let inner = file.parent().unwrap_or(folder);
        let missing: Vec<&Path> = inner
            .ancestors()
            .take_while(|path| *path != folder && path.symlink_metadata().is_err())
            .collect();
        for path in missing.into_iter().rev() {
            match fs::create_dir(path) {
                Ok(()) => self.created.push(path.to_owned()),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(SaveError::io(inner, e)),
            }
        }
        let canonical = inner.canonicalize().map_err(|e| SaveError::io(inner, e))?;
        if !canonical.starts_with(folder) {
            return Err(SaveError::place(inner, PlaceProblem::OutsideFolder));
        }
        Ok(())
    }
}

fn link_or_copy(from: &Path, to: &Path, method: Method) -> Result<(), SaveError> {
    match method {
        Method::Copy => copy_to(from, to).map_err(SaveError::Write),
        Method::Link => link_as(from, to).map_err(|e| {
            if already_exists(&e) {
                SaveError::Write(e)
            } else {
                SaveError::place(from, PlaceProblem::NotLinkable)
            }
        }),
    }
}

fn already_exists(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
}

/// Whether the file that is at `to` may serve as a copy or link of `from`.
fn compare(from: &Path, to: &Path, folder: &Path, method: Method) -> Outcome {
    // A model may not follow a link out of its folder, and readers refuse links within it.
    let inside = to.canonicalize().is_ok_and(|to| to.starts_with(folder));
    let found = to.symlink_metadata();
    let serves = found.is_ok_and(|f| f.is_file() && (method == Method::Link || has_one_name(&f)));
    // A file that cannot be read is taken for another one.
    if inside && serves && is_same(from, to).unwrap_or(false) {
        Outcome::Present
    } else {
        Outcome::Occupied
    }
}

/// Whether a file has no second name.
fn has_one_name(file: &fs::Metadata) -> bool {
    #[cfg(unix)]
    return std::os::unix::fs::MetadataExt::nlink(file) == 1;
    #[cfg(not(unix))]
    {
        let _ = file;
        true
    }
}

/// Whether two regular files contain the same bytes.
fn is_same(a: &Path, b: &Path) -> io::Result<bool> {
    let (left, right) = (fs::metadata(a)?, fs::metadata(b)?);
    // Checked before anything is opened: opening a pipe blocks.
    if !(left.is_file() && right.is_file() && left.len() == right.len()) {
        return Ok(false);
    }
    if a.canonicalize()? == b.canonicalize()? {
        return Ok(true);
    }
    let (mut a, mut b) = (
        BufReader::new(File::open(a)?),
        BufReader::new(File::open(b)?),
    );
    let (mut left, mut right) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let n = a.read(&mut left)?;
        if n == 0 {
            return Ok(true);
        }
        b.read_exact(&mut right[..n])?;
        if left[..n] != right[..n] {
            return Ok(false);
        }
    }
}
