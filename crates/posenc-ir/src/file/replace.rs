//! Writing small files.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use super::new::NewFile;
use crate::error::{Error, Result};

/// Writes a file, which is complete when it appears: the bytes are written to a file without a name,
/// or with a temporary one, that replaces `path`. A file that is there keeps its permissions; a link
/// is replaced, and not what it leads to.
///
/// # Errors
/// When the file cannot be written. Nothing is left then.
pub fn write_file(path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
    let path = path.as_ref();
    write(path, bytes).map_err(|e| Error::io(path, e))
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = NewFile::in_folder_of(path)?;
    let mut file = new.file();
    file.write_all(bytes)?;
    if let Ok(like) = fs::metadata(path) {
        new.copy_permissions(&like.permissions())?;
    }
    new.replace(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_or_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        for text in ["one", "another"] {
            write_file(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn permissions_stay_and_a_link_is_replaced() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&file, &link).unwrap();
        write_file(&link, b"new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        assert_eq!(fs::read_to_string(&link).unwrap(), "new");
        assert!(!link.symlink_metadata().unwrap().is_symlink());
        write_file(&file, b"new").unwrap();
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
    }

    #[test]
    fn what_cannot_be_written_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).unwrap();
        for path in [taken.clone(), folder.path().join("absent/a.json")] {
            let error = write_file(&path, b"new").unwrap_err().to_string();
            assert!(error.contains(path.to_str().unwrap()), "{error}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
