//! Reading from and writing to files: mapped in, streamed out, complete or not at all.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::encoded::{Encoded, Segment};
use crate::error::{Error, Result};
use crate::model::Model;
use crate::stored::External;

/// Bytes handed to the kernel or the page cache at a time.
const CHUNK: usize = 8 << 20;

impl Model {
    /// Maps a file and reads it as a model; no tensor is copied.
    ///
    /// # Errors
    /// When the file cannot be opened, is no regular file, or is no model.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let source = map(path)?;
        Self::from_bytes(source, Some(path)).map_err(|e| e.at(path.display().to_string()))
    }

    /// Reads a model from a stream into memory. External data is looked for beside `path`.
    ///
    /// # Errors
    /// When the stream fails or holds no model.
    pub fn from_reader(mut reader: impl Read, path: Option<&Path>) -> Result<Self> {
        let mut bytes = vec![];
        let read = reader.read_to_end(&mut bytes);
        read.map_err(|e| Error::io(path.unwrap_or(Path::new("the stream")), e))?;
        Self::from_bytes(bytes, path)
    }

    /// The file that an external payload stands in; `None` where the model's folder is not known,
    /// or the location is absolute or leads out of it.
    pub fn external_path(&self, external: &External) -> Option<PathBuf> {
        use std::path::Component::{CurDir, Normal};
        let location = Path::new(&external.location);
        let inside = location
            .components()
            .all(|c| matches!(c, Normal(_) | CurDir))
            // Separators and ends of names elsewhere.
            && !external.location.contains(['\\', '\0']);
        let folder = self.path()?.parent()?;
        inside.then(|| folder.join(location))
    }

    /// The regular file that an external payload stands in, links resolved. They may lead to the
    /// folder of the model as it is named, or to that of the file which the model's own link leads
    /// to: caches keep both files there.
    ///
    /// # Errors
    /// When the file is absent, no regular file, or not one that the model may name.
    pub(crate) fn external_file(&self, external: &External) -> Result<PathBuf> {
        let outside = || {
            let location = external.location.replace(char::is_control, "?");
            Error::invalid(format!(
                "external data {location} leads out of the model's folder"
            ))
        };
        let path = self.external_path(external).ok_or_else(outside)?;
        let resolve = |p: &Path| p.canonicalize().map_err(|e| Error::io(p, e));
        let file = resolve(&path)?;
        let model = self.path().unwrap_or(Path::new(""));
        let folder = match model.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let mut folders = vec![resolve(folder)?];
        // A model that is gone meanwhile has no link to follow.
        folders.extend(
            resolve(model)
                .ok()
                .and_then(|m| Some(m.parent()?.to_owned())),
        );
        if !folders.iter().any(|folder| file.starts_with(folder)) {
            return Err(outside());
        }
        match std::fs::metadata(&file) {
            Ok(meta) if meta.is_file() => Ok(file),
            Ok(_) => Err(Error::invalid("not a regular file").at(path.display().to_string())),
            Err(e) => Err(Error::io(path, e)),
        }
    }

    /// The external payload, mapped.
    ///
    /// # Errors
    /// When the file is absent, too short, or not one that the model may name.
    pub fn load(&self, external: &External) -> Result<Bytes> {
        let path = self.external_file(external)?;
        let bytes = map(&path)?;
        let start = usize::try_from(external.offset).unwrap_or(usize::MAX);
        let len = external
            .length
            .map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        let end = len.map_or(Some(bytes.len()), |n| start.checked_add(n));
        match end.filter(|end| *end <= bytes.len() && start <= *end) {
            Some(end) => Ok(bytes.slice(start..end)),
            None => Err(Error::invalid(format!(
                "{} has {} bytes, less than a tensor asks for",
                path.display(),
                bytes.len()
            ))),
        }
    }

    /// Writes the model to `path`: into a temporary file of the same folder, which takes the
    /// place of `path` when it is complete and on disk. The source may be `path` itself.
    ///
    /// # Errors
    /// When the folder cannot be written to; nothing is left behind then.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let encoded = self.encode()?;
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let failed = |e: std::io::Error| Error::io(path, e);
        let mut temporary = tempfile::Builder::new()
            .prefix(".posenc-onnx-")
            .permissions_of(self.path().unwrap_or(path))
            .tempfile_in(folder)
            .map_err(failed)?;
        self.stream(&encoded, temporary.as_file_mut())
            .map_err(failed)?;
        temporary.as_file().sync_all().map_err(failed)?;
        temporary.persist(path).map_err(|e| failed(e.error))?;
        Ok(())
    }

    /// Streams the encoded model; untouched runs go by `copy_file_range` where the system can.
    fn stream(&self, encoded: &Encoded, out: &mut File) -> std::io::Result<()> {
        let input = self.path().and_then(|p| File::open(p).ok());
        // The map stays good when the file is replaced meanwhile; the path may then be another's.
        let same = |f: &File| {
            f.metadata()
                .is_ok_and(|m| m.len() == self.source.len() as u64)
        };
        let mut input = input.filter(same);
        for segment in &encoded.segments {
            match segment {
                Segment::Owned(bytes) => out.write_all(bytes)?,
                Segment::Source(range) => {
                    let mut at = range.start;
                    while at < range.end {
                        let len = (range.end - at).min(CHUNK);
                        let copied = match &input {
                            Some(file) if range.len() >= 1 << 16 => copy_range(file, at, out, len),
                            _ => None,
                        };
                        match copied {
                            Some(n) => at += n,
                            None => {
                                input = input.filter(|_| range.len() < 1 << 16);
                                out.write_all(&self.source[at..at + len])?;
                                at += len;
                            }
                        }
                    }
                }
            }
        }
        out.flush()
    }
}

/// Copies inside the kernel; `None` where it cannot.
fn copy_range(from: &File, at: usize, to: &File, len: usize) -> Option<usize> {
    let mut offset = at as u64;
    rustix::fs::copy_file_range(from, Some(&mut offset), to, None, len)
        .ok()
        .filter(|n| *n > 0)
}

/// Maps a regular file.
pub(crate) fn map(path: &Path) -> Result<Bytes> {
    let failed = |e| Error::io(path, e);
    // Asked for before the file is opened: to open a pipe is to wait for its writer.
    let meta = std::fs::metadata(path).map_err(failed)?;
    if !meta.is_file() {
        return Err(Error::invalid("not a regular file").at(path.display().to_string()));
    }
    let file = File::open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if meta.len() == 0 {
        return Ok(Bytes::new());
    }
    // Safety: the map is read only. Whoever truncates the file meanwhile makes reads fault,
    // which no reader of a map can rule out; the tool itself replaces files by renaming.
    #[allow(unsafe_code)]
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(failed)?;
    Ok(Bytes::from_owner(map))
}

trait PermissionsOf {
    /// New files get the permissions of `path`, where that can be told.
    fn permissions_of(&mut self, path: &Path) -> &mut Self;
}

impl PermissionsOf for tempfile::Builder<'_, '_> {
    fn permissions_of(&mut self, path: &Path) -> &mut Self {
        match std::fs::metadata(path) {
            Ok(meta) => self.permissions(meta.permissions()),
            Err(_) => self,
        }
    }
}
