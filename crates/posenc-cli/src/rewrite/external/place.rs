//! One file of data beside an output.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use posenc_ir::ErrorKind;
use posenc_ir::file::{copy_to, share_as};

use crate::exit::Failure;

/// How a file of data comes to be in another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Link,
    Copy,
    LinkOrCopy,
}

/// What became of a place for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The data is there now.
    Placed,
    /// The same data was there before.
    There,
    /// Something else is there.
    Taken,
}

/// What was put beside an output: folders and files, in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct Placed(Vec<PathBuf>);

impl Placed {
    /// Takes everything away again.
    pub(super) fn undo(&self) {
        for path in self.0.iter().rev() {
            // Nothing better can be done about what does not go, or is in use by now.
            let _ = match path.is_dir() {
                true => fs::remove_dir(path),
                false => fs::remove_file(path),
            };
        }
    }

    /// How many files and folders there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Puts the data of `from` at a location in a folder, where nothing else is there.
    pub(super) fn put(
        &mut self,
        from: &Path,
        folder: &Path,
        location: &str,
        how: How,
    ) -> anyhow::Result<Outcome> {
        let to = folder.join(location);
        self.make_folders(folder, &to)?;
        if to.symlink_metadata().is_ok() {
            return Ok(found(from, &to, folder));
        }
        let shared = match how {
            How::Copy => None,
            How::Link | How::LinkOrCopy => Some(share_as(from, &to)),
        };
        let done = match (shared, how) {
            (Some(Ok(())), _) => Ok(()),
            (Some(Err(e)), _) if is_taken(&e) => Err(e),
            (Some(Err(_)), How::Link) => {
                let from = from.display();
                let sentence =
                    format!("{from}: cannot be linked to there; give --external-data copy");
                return Err(Failure::usage(sentence).into());
            }
            _ => copy_to(from, &to),
        };
        match done {
            Ok(()) => {
                self.0.push(to);
                Ok(Outcome::Placed)
            }
            // Another run was faster.
            Err(e) if is_taken(&e) => Ok(found(from, &to, folder)),
            Err(e) => Err(Failure::usage(e.to_string()).into()),
        }
    }

    /// Makes the folders between `folder` and a file in it, which must not lead elsewhere.
    fn make_folders(&mut self, folder: &Path, file: &Path) -> anyhow::Result<()> {
        let inner = file.parent().unwrap_or(folder);
        let failed = |e: io::Error| Failure::usage(format!("{}: {e}", inner.display()));
        let missing: Vec<&Path> = inner
            .ancestors()
            .take_while(|path| *path != folder && path.symlink_metadata().is_err())
            .collect();
        for path in missing.into_iter().rev() {
            match fs::create_dir(path) {
                Ok(()) => self.0.push(path.to_owned()),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(failed(e).into()),
            }
        }
        let real = inner.canonicalize().map_err(failed)?;
        if !real.starts_with(folder) {
            let inner = inner.display();
            let sentence = format!("{inner}: leads out of the output's folder; give another -o");
            return Err(Failure::usage(sentence).into());
        }
        Ok(())
    }
}

fn is_taken(error: &posenc_ir::Error) -> bool {
    matches!(error.kind(), ErrorKind::Io { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
}

fn found(from: &Path, to: &Path, folder: &Path) -> Outcome {
    // A model may not follow a link out of its folder, whatever stands at its end.
    let inside = to.canonicalize().is_ok_and(|to| to.starts_with(folder));
    match is_same(from, to) {
        Ok(true) if inside => Outcome::There,
        // What cannot be read is not known to be the same.
        Ok(_) | Err(_) => Outcome::Taken,
    }
}

/// Whether two files hold the same bytes.
fn is_same(a: &Path, b: &Path) -> io::Result<bool> {
    let (left, right) = (fs::metadata(a)?, fs::metadata(b)?);
    // Asked for before anything is opened: to open a pipe is to wait.
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
