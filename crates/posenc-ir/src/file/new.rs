//! New files, which get their name when they are complete.

use std::fs::{File, Permissions};
use std::io;
use std::path::Path;

use tempfile::NamedTempFile;

use super::path::folder;

/// The prefix of temporary names.
const PREFIX: &str = ".posenc-onnx-";

/// A file that is being written, in the folder of its future path. It has no name where the system
/// supports that, so that nothing is left when the process is killed; else a temporary name.
#[derive(Debug)]
pub(super) enum NewFile {
    #[cfg(target_os = "linux")]
    Unnamed(File),
    Named(NamedTempFile),
}

/// The error without the temporary name, which no user gave.
fn without_path(error: io::Error) -> io::Error {
    match error.get_ref() {
        Some(_) => error.kind().into(),
        None => error,
    }
}

impl NewFile {
    /// A file in the folder of `path`, with the default permissions of new files.
    pub(super) fn in_folder_of(path: &Path) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        if let Some(file) = unnamed::open(folder(path)) {
            return Ok(Self::Unnamed(file));
        }
        Self::named(path)
    }

    /// The same, with a temporary name.
    pub(super) fn named(path: &Path) -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(Permissions::from_mode(0o666));
        }
        let file = builder.prefix(PREFIX).tempfile_in(folder(path));
        let file = file.map_err(without_path)?;
        Ok(Self::Named(file))
    }

    /// The file, for writing.
    pub(super) fn file(&self) -> &File {
        match self {
            #[cfg(target_os = "linux")]
            Self::Unnamed(file) => file,
            Self::Named(file) => file.as_file(),
        }
    }

    /// Sets the permissions of another file, without the bits that run a program as another user.
    pub(super) fn copy_permissions(&self, like: &Permissions) -> io::Result<()> {
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = Permissions::from_mode(like.mode() & 0o777);
            self.file().set_permissions(mode)
        }
        #[cfg(not(unix))]
        {
            let _ = like;
            Ok(())
        }
    }

    /// Writes it to disk and names it `path`, replacing an existing file.
    pub(super) fn replace(self, path: &Path) -> io::Result<()> {
        self.file().sync_all()?;
        match self {
            #[cfg(target_os = "linux")]
            Self::Unnamed(file) => match unnamed::name(&file, path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    // A link cannot replace a file, so it gets a temporary name first and is renamed.
                    let mut builder = tempfile::Builder::new();
                    let named = |temporary: &Path| unnamed::name(&file, temporary);
                    let named = builder.prefix(PREFIX).make_in(folder(path), named)?;
                    named.into_temp_path().persist(path).map_err(|e| e.error)
                }
                named => named,
            },
            Self::Named(file) => file.persist(path).map(drop).map_err(|e| e.error),
        }?;
        sync_folder(path);
        Ok(())
    }

    /// Writes it to disk and names it `path`, which must not exist.
    ///
    /// # Errors
    /// `AlreadyExists`, when it does.
    pub(super) fn create(self, path: &Path) -> io::Result<()> {
        self.file().sync_all()?;
        match self {
            #[cfg(target_os = "linux")]
            Self::Unnamed(file) => unnamed::name(&file, path),
            Self::Named(file) => {
                let created = file.persist_noclobber(path);
                created.map(drop).map_err(|e| e.error)
            }
        }?;
        sync_folder(path);
        Ok(())
    }
}

/// Writes the entries of a folder to disk. Not all file systems support it; the file itself is on
/// disk already.
fn sync_folder(path: &Path) {
    let _ = File::open(folder(path)).and_then(|folder| folder.sync_all());
}

#[cfg(target_os = "linux")]
mod unnamed {
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd;
    use std::path::{Path, PathBuf};

    use rustix::fs::{AtFlags, CWD, Mode, OFlags};

    /// The path of an open file by its descriptor, which can be linked.
    fn by_number(file: &File) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
    }

    /// A file without a name; `None` where it is not supported or could not get a name later.
    pub(super) fn open(folder: &Path) -> Option<File> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(folder, flags, Mode::from_raw_mode(0o666)).ok()?;
        let file = File::from(file);
        by_number(&file).symlink_metadata().is_ok().then_some(file)
    }

    /// Names the file; the name must be free.
    pub(super) fn name(file: &File, path: &Path) -> io::Result<()> {
        let from = by_number(file);
        rustix::fs::linkat(CWD, &from, CWD, path, AtFlags::SYMLINK_FOLLOW).map_err(Into::into)
    }
}
