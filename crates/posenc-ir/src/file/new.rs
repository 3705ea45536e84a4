//! Files that appear when they are complete.

use std::fs::{File, Permissions};
use std::io;
use std::path::Path;

use tempfile::NamedTempFile;

use super::path::folder;

/// What temporary names start with.
const PREFIX: &str = ".posenc-onnx-";

/// A file under way in the folder that it is for. It has no name yet where the system knows such
/// files, so that nothing is left of it however the process ends; else a temporary one.
#[derive(Debug)]
pub(super) enum NewFile {
    #[cfg(target_os = "linux")]
    Unnamed(File),
    Named(NamedTempFile),
}

impl NewFile {
    /// A file for the folder of `path`, with the permissions that new files get.
    pub(super) fn beside(path: &Path) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        if let Some(file) = unnamed::open(folder(path)) {
            return Ok(Self::Unnamed(file));
        }
        Self::named(path)
    }

    /// The same with a temporary name.
    pub(super) fn named(path: &Path) -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(Permissions::from_mode(0o666));
        }
        let file = builder.prefix(PREFIX).tempfile_in(folder(path))?;
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

    /// Gives it the permissions of another file. They are of its users; the bits that run a
    /// program as somebody else are not passed on.
    pub(super) fn permit(&self, like: &Permissions) -> io::Result<()> {
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

    /// Gives it its name, in place of what had that name before; then it is on disk.
    pub(super) fn replace(self, path: &Path) -> io::Result<()> {
        self.file().sync_all()?;
        match self {
            #[cfg(target_os = "linux")]
            Self::Unnamed(file) => match unnamed::name(&file, path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    // A link replaces nothing, so it takes a name first that a rename takes away.
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

    /// Gives it a name that is free; then it is on disk.
    ///
    /// # Errors
    /// Of the kind `AlreadyExists`, when it is not.
    pub(super) fn appear(self, path: &Path) -> io::Result<()> {
        self.file().sync_all()?;
        match self {
            #[cfg(target_os = "linux")]
            Self::Unnamed(file) => unnamed::name(&file, path),
            Self::Named(file) => {
                let appeared = file.persist_noclobber(path);
                appeared.map(drop).map_err(|e| e.error)
            }
        }?;
        sync_folder(path);
        Ok(())
    }
}

/// Writes the names of a folder to disk. File systems that cannot do so keep them otherwise, and
/// the file itself is safe by now.
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

    /// The place of an open file under its number, by which it can be linked to.
    fn by_number(file: &File) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
    }

    /// A file without a name; `None` where the file system has none, or they could get no name.
    pub(super) fn open(folder: &Path) -> Option<File> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(folder, flags, Mode::from_raw_mode(0o666)).ok()?;
        let file = File::from(file);
        by_number(&file).symlink_metadata().is_ok().then_some(file)
    }

    /// Gives it a name that is free.
    pub(super) fn name(file: &File, path: &Path) -> io::Result<()> {
        let from = by_number(file);
        rustix::fs::linkat(CWD, &from, CWD, path, AtFlags::SYMLINK_FOLLOW).map_err(Into::into)
    }
}
