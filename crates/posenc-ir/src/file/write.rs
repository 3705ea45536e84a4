//! Writing models to files.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::copy::{METHODS, copy};
use super::new::NewFile;
use crate::encoded::{Encoded, Segment};
use crate::error::{Error, ErrorKind, Result};
use crate::model::Model;

/// The largest message that readers of protobuf accept, in bytes.
const LARGEST: usize = i32::MAX as usize;

/// Segments of at least this many bytes are copied from file to file; shorter ones are buffered.
const LONG: usize = 1 << 16;

/// The size of the buffer.
const BUFFER: usize = 1 << 18;

impl Model {
    /// Writes the model to `path` and leaves external data as it is: the new file names it relative
    /// to its own folder. [`Model::save`] places external data first.
    ///
    /// The bytes are written to an unnamed file in the folder of `path` (or to a temporary file,
    /// where the system has no unnamed ones), which replaces `path` when it is complete and on
    /// disk: even if the process is killed, `path` is either the old file or the new one. `path`
    /// may be the file that the model was read from, whose permissions the new file gets.
    /// Unchanged bytes are copied in the kernel where possible; no weights are kept in memory.
    ///
    /// # Errors
    /// When the model has more than 2³¹ − 1 bytes, the most that readers of protobuf accept; when
    /// the file cannot be written. No partial file is left.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        self.write_encoded(&self.encode()?, path)
    }

    /// Writes an encoding of this model; see [`Model::write`].
    ///
    /// # Errors
    /// As [`Model::write`].
    pub(crate) fn write_encoded(&self, encoded: &Encoded, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let failed = |e: io::Error| Error::io(path, e);
        if encoded.len() > LARGEST {
            let bytes = encoded.len();
            return Err(Error::new(ErrorKind::TooLarge { bytes }));
        }
        let new = NewFile::in_folder_of(path).map_err(failed)?;
        self.stream(encoded, new.file()).map_err(failed)?;
        let like = match (&self.file, self.path()) {
            (Some(file), _) => file.metadata().ok(),
            (None, input) => fs::metadata(input.unwrap_or(path)).ok(),
        };
        if let Some(like) = like {
            new.copy_permissions(&like.permissions()).map_err(failed)?;
        }
        new.replace(path).map_err(failed)
    }

    fn stream(&self, encoded: &Encoded, out: &File) -> io::Result<()> {
        let mut buffer = BufWriter::with_capacity(BUFFER, out);
        for segment in &encoded.segments {
            let (file, start, bytes) = match segment {
                Segment::Owned(bytes) => {
                    buffer.write_all(bytes)?;
                    continue;
                }
                Segment::Source(range) => {
                    let bytes = &self.source[range.clone()];
                    (self.file.as_ref(), range.start, bytes)
                }
                Segment::Outside(file, range) => {
                    (Some(&file.file), range.start, &file.bytes[range.clone()])
                }
            };
            match file {
                Some(file) if bytes.len() >= LONG => {
                    buffer.flush()?;
                    let start = start as u64;
                    copy(file, start..start + bytes.len() as u64, out, METHODS)?;
                }
                _ => buffer.write_all(bytes)?,
            }
        }
        buffer.flush()
    }
}
