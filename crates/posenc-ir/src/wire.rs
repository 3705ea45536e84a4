//! The protobuf wire format: walking the fields of a message without decoding it, and writing
//! single fields.

use std::ops::Range;

use crate::error::{Error, Result};

/// One field of an encoded message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// The field number.
    pub(crate) number: u32,
    /// Tag and payload.
    pub(crate) span: Range<usize>,
    /// The content of a length-delimited field, the varint, or the fixed-width bytes.
    pub(crate) payload: Range<usize>,
    /// Whether the field is length-delimited: a message, string, bytes or packed list.
    pub(crate) delimited: bool,
}

/// Walks the fields of the message at `within` of `bytes`; ranges are relative to `bytes`.
pub(crate) fn fields(bytes: &[u8], within: Range<usize>) -> Fields<'_> {
    let end = within.end.min(bytes.len());
    Fields {
        bytes: &bytes[..end],
        at: within.start,
    }
}

/// The field at `span` of `bytes`.
pub(crate) fn field(bytes: &[u8], span: Range<usize>) -> Result<Field> {
    let start = span.start;
    let first = fields(bytes, span).next();
    first.unwrap_or_else(|| Err(truncated(start)))
}

/// Iterator of [`fields`].
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Iterator for Fields<'_> {
    type Item = Result<Field>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.at = self.bytes.len();
        }
        Some(field)
    }
}

impl Fields<'_> {
    fn field(&mut self) -> Result<Field> {
        let start = self.at;
        let (number, kind) = self.tag()?;
        let mut payload = self.at..self.at;
        match kind {
            0 => {
                self.varint()?;
            }
            1 => self.skip(8)?,
            2 => {
                let len = self.varint()?;
                payload.start = self.at;
                self.skip(usize::try_from(len).unwrap_or(usize::MAX))?;
            }
            3 => self.group(start)?,
            5 => self.skip(4)?,
            _ => return Err(Error::decode(format!("invalid wire type at byte {start}"))),
        }
        payload.end = self.at;
        Ok(Field {
            number,
            span: start..self.at,
            payload,
            delimited: kind == 2,
        })
    }

    /// Skips a group with nested ones, without recursion.
    fn group(&mut self, start: usize) -> Result<()> {
        let mut depth = 1usize;
        while depth > 0 {
            match self.tag()?.1 {
                0 => {
                    self.varint()?;
                }
                1 => self.skip(8)?,
                2 => {
                    let len = self.varint()?;
                    self.skip(usize::try_from(len).unwrap_or(usize::MAX))?;
                }
                3 => depth += 1,
                4 => depth -= 1,
                5 => self.skip(4)?,
                _ => return Err(Error::decode(format!("invalid wire type at byte {start}"))),
            }
        }
        Ok(())
    }

    fn tag(&mut self) -> Result<(u32, u8)> {
        let start = self.at;
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3)
            .ok()
            .filter(|n| (1..1 << 29).contains(n))
            .ok_or_else(|| Error::decode(format!("invalid field number at byte {start}")))?;
        Ok((number, (tag & 7) as u8))
    }

    fn varint(&mut self) -> Result<u64> {
        let (value, len) = varint(self.bytes.get(self.at..).unwrap_or_default())
            .ok_or_else(|| truncated(self.at))?;
        self.at += len;
        Ok(value)
    }

    fn skip(&mut self, len: usize) -> Result<()> {
        let end = self.at.checked_add(len).filter(|e| *e <= self.bytes.len());
        self.at = end.ok_or_else(|| truncated(self.at))?;
        Ok(())
    }
}

fn truncated(at: usize) -> Error {
    Error::decode(format!("the file ends inside the field at byte {at}"))
}

/// A varint at the start of `bytes`, and its length; `None` when it is truncated or longer than 10
/// bytes.
pub(crate) fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (i, byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Some((value, i + 1));
        }
    }
    None
}

/// Writes a varint.
pub(crate) fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes the tag and length of a length-delimited field.
pub(crate) fn put_header(number: u32, len: usize, out: &mut Vec<u8>) {
    put_varint(u64::from(number) << 3 | 2, out);
    put_varint(len as u64, out);
}

/// Writes a whole length-delimited field.
pub(crate) fn put_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    put_header(number, bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// Writes a varint field.
pub(crate) fn put_int(number: u32, value: u64, out: &mut Vec<u8>) {
    put_varint(u64::from(number) << 3, out);
    put_varint(value, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(bytes: &[u8]) -> Result<Vec<Field>> {
        fields(bytes, 0..bytes.len()).collect()
    }

    #[test]
    fn every_wire_type_is_skipped_completely() {
        let mut bytes = vec![0x08, 0x96, 0x01]; // 1: varint 150
        bytes.extend([0x11, 0, 0, 0, 0, 0, 0, 0, 0]); // 2: fixed 64
        bytes.extend([0x1a, 2, 7, 7]); // 3: bytes
        bytes.extend([0x23, 0x2b, 0x08, 1, 0x2c, 0x24]); // 4: group with a group 5 inside
        bytes.extend([0x35, 0, 0, 0, 0]); // 6: fixed 32
        let got = walk(&bytes).unwrap();
        let numbers: Vec<u32> = got.iter().map(|f| f.number).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 6]);
        assert_eq!(got[2].payload, 14..16);
        assert_eq!(got.last().unwrap().span.end, bytes.len());
    }

    #[test]
    fn broken_messages_are_errors() {
        let cases: [(&str, &[u8]); 6] = [
            ("cut varint", &[0x08, 0x96]),
            ("cut length", &[0x1a, 5, 1]),
            (
                "huge length",
                &[0x1a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
            ),
            ("field number 0", &[0x00, 1]),
            ("wire type 7", &[0x0f]),
            ("open group", &[0x23, 0x08, 1]),
        ];
        for (name, bytes) in cases {
            assert!(walk(bytes).is_err(), "{name}");
        }
    }

    #[test]
    fn varints_round_trip() {
        for v in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = vec![];
            put_varint(v, &mut out);
            assert_eq!(varint(&out), Some((v, out.len())));
        }
        assert_eq!(varint(&[0x80; 11]), None);
    }
}
