//! An encoded model: ranges of the source, and new bytes between them.

#[cfg_attr(
    target_family = "wasm",
    allow(dead_code, reason = "only saving to files moves external data")
)]
mod external;
mod rope;

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::wire;

/// The bytes of a model, as ranges of the source, new bytes, and ranges of other files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Encoded {
    pub(crate) segments: Vec<Segment>,
    len: usize,
}

/// A part of an encoded model.
#[derive(Clone, Debug)]
pub(crate) enum Segment {
    /// A range of the source.
    Source(Range<usize>),
    /// New bytes.
    Owned(Vec<u8>),
    /// A range of another file.
    Outside(Arc<Outside>, Range<usize>),
}

/// A file of data.
#[derive(Debug)]
#[cfg_attr(
    target_family = "wasm",
    allow(dead_code, reason = "only writing files copies from file to file")
)]
pub(crate) struct Outside {
    pub(crate) file: Arc<File>,
    pub(crate) bytes: Bytes,
}

impl Encoded {
    /// The number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The bytes, for a model that was read from `source`.
    pub(crate) fn to_vec(&self, source: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len);
        for segment in &self.segments {
            out.extend_from_slice(segment.bytes(source));
        }
        out
    }

    pub(crate) fn source(&mut self, range: Range<usize>) {
        self.len += range.len();
        match self.segments.last_mut() {
            Some(Segment::Source(last)) if last.end == range.start => last.end = range.end,
            _ if range.is_empty() => {}
            _ => self.segments.push(Segment::Source(range)),
        }
    }

    pub(crate) fn owned(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
        match self.segments.last_mut() {
            Some(Segment::Owned(last)) => last.extend_from_slice(bytes),
            _ => self.segments.push(Segment::Owned(bytes.to_vec())),
        }
    }

    pub(crate) fn outside(&mut self, file: Arc<Outside>, range: Range<usize>) {
        if !range.is_empty() {
            self.len += range.len();
            self.segments.push(Segment::Outside(file, range));
        }
    }

    pub(crate) fn append(&mut self, other: Self) {
        for segment in other.segments {
            match segment {
                Segment::Source(range) => self.source(range),
                Segment::Owned(bytes) => self.owned(&bytes),
                Segment::Outside(file, range) => self.outside(file, range),
            }
        }
    }

    /// A length-delimited field around `content`.
    pub(crate) fn field(&mut self, number: u32, content: Self) {
        let mut header = vec![];
        wire::put_header(number, content.len, &mut header);
        self.owned(&header);
        self.append(content);
    }
}

impl Segment {
    /// The bytes, for a model that was read from `source`.
    fn bytes<'a>(&'a self, source: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Source(range) => &source[range.clone()],
            Self::Owned(bytes) => bytes,
            Self::Outside(file, range) => &file.bytes[range.clone()],
        }
    }
}
