//! An encoded model as one range of bytes, without joining its segments.

use std::ops::Range;

use super::{Encoded, Segment};
use crate::error::{Error, Result};
use crate::wire::{self, Field};

/// An encoded model that is read by offsets into the whole (a rope of its segments).
///
/// A tag with its length, and a field without a length, are always within one segment; the content
/// of a length-delimited field may span several.
#[derive(Debug)]
pub(crate) struct Rope<'a> {
    encoded: &'a Encoded,
    source: &'a [u8],
    /// The offset of each segment.
    starts: Vec<usize>,
}

impl<'a> Rope<'a> {
    /// The rope of an encoded model that was read from `source`.
    pub(crate) fn new(encoded: &'a Encoded, source: &'a [u8]) -> Self {
        let lengths = encoded.segments.iter().map(|s| s.bytes(source).len());
        let starts = lengths.scan(0, |at, len| {
            let start = *at;
            *at += len;
            Some(start)
        });
        Self {
            encoded,
            source,
            starts: starts.collect(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.encoded.len()
    }

    /// The bytes from `at` to the end of its segment.
    pub(crate) fn rest(&self, at: usize) -> &'a [u8] {
        let next = self.starts.partition_point(|start| *start <= at);
        let Some(i) = next.checked_sub(1) else {
            return &[];
        };
        let bytes = self.encoded.segments[i].bytes(self.source);
        bytes.get(at - self.starts[i]..).unwrap_or_default()
    }

    /// The field at `at` of a message that ends at `end`.
    pub(crate) fn field(&self, at: usize, end: usize) -> Result<Field> {
        let rest = self.rest(at);
        let cut = || Error::decode(format!("the model ends inside the field at byte {at}"));
        let (tag, tag_len) = wire::varint(rest).ok_or_else(cut)?;
        if tag & 7 != 2 {
            let field = wire::fields(rest, 0..rest.len()).next().ok_or_else(cut)??;
            let moved = |r: Range<usize>| r.start + at..r.end + at;
            return Ok(Field {
                span: moved(field.span),
                payload: moved(field.payload),
                ..field
            });
        }
        let (len, len_len) = wire::varint(&rest[tag_len..]).ok_or_else(cut)?;
        let start = at + tag_len + len_len;
        let stop = usize::try_from(len).ok().and_then(|n| start.checked_add(n));
        let stop = stop.filter(|stop| *stop <= end).ok_or_else(cut)?;
        Ok(Field {
            number: u32::try_from(tag >> 3).map_err(|_| cut())?,
            span: at..stop,
            payload: start..stop,
            delimited: true,
        })
    }

    /// The fields of the message at `within`.
    pub(crate) fn fields(&self, within: Range<usize>) -> impl Iterator<Item = Result<Field>> {
        let mut at = within.start;
        std::iter::from_fn(move || {
            let field = (at < within.end).then(|| self.field(at, within.end))?;
            at = field.as_ref().map_or(within.end, |f| f.span.end);
            Some(field)
        })
    }

    /// Appends the segments of a range to `out`.
    pub(crate) fn slice(&self, range: Range<usize>, out: &mut Encoded) {
        let mut i = self.starts.partition_point(|start| *start <= range.start);
        let mut at = range.start;
        i = i.saturating_sub(1);
        while at < range.end && i < self.starts.len() {
            let segment = &self.encoded.segments[i];
            let len = segment.bytes(self.source).len();
            let from = at - self.starts[i];
            let to = len.min(range.end - self.starts[i]);
            match segment {
                Segment::Source(r) => out.source(r.start + from..r.start + to),
                Segment::Owned(bytes) => out.owned(&bytes[from..to]),
                Segment::Outside(file, r) => {
                    out.outside(file.clone(), r.start + from..r.start + to);
                }
            }
            at = self.starts[i] + to;
            i += 1;
        }
    }

    /// The bytes of a range.
    pub(crate) fn bytes(&self, range: Range<usize>) -> Vec<u8> {
        let mut out = Encoded::default();
        self.slice(range, &mut out);
        out.to_vec(self.source)
    }
}
