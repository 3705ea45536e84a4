//! Models, and files of data, onto disk.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::copy::{WAYS, copy};
use super::new::NewFile;
use crate::encoded::{Encoded, Segment};
use crate::error::{Error, ErrorKind, Result};
use crate::model::Model;

/// The largest message that readers of protobuf accept.
const LARGEST: usize = i32::MAX as usize;

/// Runs of at least this many bytes go from file to file; shorter ones are gathered.
const RUN: usize = 1 << 16;

/// Bytes that are gathered before they are written.
const GATHERED: usize = 1 << 18;

impl Model {
    /// Writes the model to `path`, with its external data where it is.
    ///
    /// The bytes go to a file without a name in the folder of `path` (or with a temporary one,
    /// where the system has no such files), which takes the place of `path` when it is complete
    /// and on disk: whenever the process ends, `path` is the old file or the new one. It may be
    /// the file that the model was read from. Permissions follow that file. Untouched runs are
    /// copied inside of the kernel where it can; memory stays bounded by the graph.
    ///
    /// # Errors
    /// When the model has more than 2³¹ − 1 bytes, which no reader of protobuf takes; or the
    /// folder cannot be written to. Nothing is left behind then.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        self.write_encoded(&self.encode()?, path)
    }

    /// Writes what [`Model::encode`] and its companions made of this model; see [`Model::write`].
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
        let new = NewFile::beside(path).map_err(failed)?;
        self.stream(encoded, new.file()).map_err(failed)?;
        let like = match (&self.file, self.path()) {
            (Some(file), _) => file.metadata().ok(),
            (None, input) => fs::metadata(input.unwrap_or(path)).ok(),
        };
        if let Some(like) = like {
            new.permit(&like.permissions()).map_err(failed)?;
        }
        new.replace(path).map_err(failed)
    }

    fn stream(&self, encoded: &Encoded, out: &File) -> io::Result<()> {
        let mut gather = BufWriter::with_capacity(GATHERED, out);
        for segment in &encoded.segments {
            let (file, start, bytes) = match segment {
                Segment::Owned(bytes) => {
                    gather.write_all(bytes)?;
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
                Some(file) if bytes.len() >= RUN => {
                    gather.flush()?;
                    let start = start as u64;
                    copy(file, start..start + bytes.len() as u64, out, WAYS)?;
                }
                _ => gather.write_all(bytes)?,
            }
        }
        gather.flush()
    }
}
