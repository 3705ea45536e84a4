//! Tensors: their type, and their values, hash or location.

use std::fmt::{self, Write};

use bytes::Bytes;
use half::{bf16, f16};
use prost::Message;
use sha2::{Digest, Sha256};

use super::element::{Element, element};
use super::graph::{Pass, Printer};
use super::{SMALL, Weights, double, float, quote};
use crate::dtype::DType;
use crate::proto::TensorProto;
use crate::stored::{Payload, Stored};

impl Printer<'_> {
    /// `float[2,3]`, or `float` for a scalar.
    pub(super) fn tensor_type(&mut self, stored: &Stored) -> fmt::Result {
        let Some(dtype) = stored.dtype else {
            let what = "tensors of an unknown element type are written as uint8";
            self.notes.note(what, String::new);
            return write!(self.out, "uint8{}", dims(&stored.dims));
        };
        write!(self.out, "{dtype}{}", dims(&stored.dims))
    }

    /// Whether the values are written, and not a location or hash.
    pub(super) fn is_written(&self, stored: &Stored) -> bool {
        let small = stored.elements().is_some_and(|n| n <= SMALL);
        match &stored.payload {
            Payload::External(_) | Payload::Sparse => false,
            _ if !small && self.weights != Weights::Full => false,
            Payload::Typed(_) if stored.dtype == Some(DType::String) => {
                Some(strings(stored).len()) == stored.elements()
            }
            Payload::Raw(bytes) if stored.dtype == Some(DType::String) => {
                bytes.is_empty() && stored.elements() == Some(0)
            }
            _ => stored.tensor().is_ok(),
        }
    }

    /// `{1.0, 2.0}` or `["sha256": "…"]`; returns a comment with the values where the literals are bits.
    pub(super) fn tensor_payload(
        &mut self,
        stored: &Stored,
        label: impl FnOnce() -> String,
    ) -> Result<Option<String>, fmt::Error> {
        let is_string = stored.dtype == Some(DType::String);
        if self.is_written(stored) {
            return if self.pass == Pass::Write || is_string {
                self.elements(stored)
            } else {
                Ok(None)
            };
        }
        let here = matches!(stored.payload, Payload::Raw(_) | Payload::Typed(_));
        if self.weights == Weights::Full && here {
            let what = "tensors whose payload does not fit their type and dimensions are omitted";
            self.notes.note(what, label);
        }
        if self.pass == Pass::Note {
            return Ok(None);
        }
        let entries = match &stored.payload {
            Payload::External(e) => {
                let length = e.length.map(|n| ("length", n.to_string()));
                let offset = ("offset", e.offset.to_string());
                let mut entries = vec![("location", e.location.clone()), offset];
                entries.extend(length);
                let others = e.others.iter();
                entries.extend(others.map(|(key, value)| (key.as_str(), value.clone())));
                entries
            }
            Payload::Sparse => vec![("sparse", String::new())],
            Payload::Raw(bytes) | Payload::Typed(bytes) => match self.weights {
                Weights::None => vec![("length", bytes.len().to_string())],
                Weights::Hash | Weights::Full => vec![("sha256", hash(stored, bytes))],
            },
        };
        let entries = entries
            .iter()
            .map(|(key, value)| format!("{}: {}", quote(key), quote(value)));
        let entries = entries.collect::<Vec<_>>().join(", ");
        write!(self.out, "[{entries}]")?;
        Ok(None)
    }

    fn elements(&mut self, stored: &Stored) -> Result<Option<String>, fmt::Error> {
        let dtype = stored.dtype.unwrap_or(DType::U8);
        self.out.write_str("{")?;
        let mut comment = None;
        if dtype == DType::String {
            for (i, text) in strings(stored).iter().enumerate() {
                self.out.write_str(if i > 0 { ", " } else { "" })?;
                let text = self.text(text);
                self.out.write_str(&text)?;
            }
        } else {
            let bytes = payload(stored).unwrap_or_default();
            let separator = |i| if i > 0 { ", " } else { "" };
            let written = element(dtype);
            if written == Element::Sixes {
                let codes = unpack_sixes(&bytes).take(stored.elements().unwrap_or(0));
                for (i, code) in codes.enumerate() {
                    write!(self.out, "{}{code}", separator(i))?;
                }
            }
            let width = match written {
                Element::F32 => 4,
                Element::F64 => 8,
                Element::Bits(width) => width,
                Element::Sixes | Element::Text => usize::MAX,
            };
            let chunks = bytes.chunks(width).filter(|b| b.len() == width);
            for (i, element) in chunks.enumerate() {
                self.out.write_str(separator(i))?;
                self.out.write_str(&number(dtype, element))?;
            }
            let small = stored.elements().is_some_and(|n| n <= SMALL);
            if small && matches!(dtype, DType::F16 | DType::BF16) {
                let values = bytes.chunks(2).map(|b| real(dtype, b));
                comment = Some(values.collect::<Vec<_>>().join(", "));
            }
        }
        self.out.write_str("}")?;
        Ok(comment.filter(|c| !c.is_empty()))
    }
}

fn dims(dims: &[usize]) -> String {
    if dims.is_empty() {
        return String::new();
    }
    let dims: Vec<String> = dims.iter().map(usize::to_string).collect();
    format!("[{}]", dims.join(","))
}

/// The little-endian payload, decoded from typed lists.
fn payload(stored: &Stored) -> Option<Bytes> {
    match &stored.payload {
        Payload::Raw(bytes) => Some(bytes.clone()),
        _ => stored.tensor().ok().map(|t| t.bytes().clone()),
    }
}

fn strings(stored: &Stored) -> Vec<Bytes> {
    match &stored.payload {
        Payload::Typed(message) => {
            TensorProto::decode(message.clone()).map_or(vec![], |t| t.string_data)
        }
        _ => vec![],
    }
}

/// Elements of six bits, as many complete ones as the payload has.
fn unpack_sixes(bytes: &[u8]) -> impl Iterator<Item = u8> {
    let code = |at: usize| {
        let word = [bytes[at / 8], bytes.get(at / 8 + 1).copied().unwrap_or(0)];
        (u16::from_le_bytes(word) >> (at % 8)) as u8 & 63
    };
    (0..bytes.len() * 8 / 6).map(move |i| code(i * 6))
}

/// One literal: floats under 32 bits as their bits, elements under 8 bits as a byte of several.
fn number(dtype: DType, b: &[u8]) -> String {
    fn word<const N: usize>(b: &[u8]) -> [u8; N] {
        b.try_into().unwrap_or([0; N])
    }
    match dtype {
        DType::F32 | DType::Complex64 => float(f32::from_le_bytes(word(b))),
        DType::F64 | DType::Complex128 => double(f64::from_le_bytes(word(b))),
        DType::I64 => i64::from_le_bytes(word(b)).to_string(),
        DType::U64 => u64::from_le_bytes(word(b)).to_string(),
        DType::I32 => i32::from_le_bytes(word(b)).to_string(),
        DType::U32 => u32::from_le_bytes(word(b)).to_string(),
        DType::I16 => i16::from_le_bytes(word(b)).to_string(),
        DType::U16 | DType::F16 | DType::BF16 => u16::from_le_bytes(word(b)).to_string(),
        DType::I8 => i8::from_le_bytes(word(b)).to_string(),
        _ => u8::from_le_bytes(word(b)).to_string(),
    }
}

fn real(dtype: DType, b: &[u8]) -> String {
    let bits = b.try_into().map_or(0, u16::from_le_bytes);
    float(match dtype {
        DType::F16 => f16::from_bits(bits).to_f32(),
        _ => bf16::from_bits(bits).to_f32(),
    })
}

/// The first twelve digits of the sha256 of the little-endian payload; the same for typed lists and
/// raw payloads.
pub(super) fn hash(stored: &Stored, raw: &Bytes) -> String {
    let mut sha = Sha256::new();
    if stored.dtype == Some(DType::String) {
        for text in strings(stored) {
            sha.update(&text);
            sha.update([0]);
        }
    } else {
        sha.update(payload(stored).as_ref().unwrap_or(raw));
    }
    let mut out = String::new();
    for byte in &sha.finalize()[..6] {
        // Writing into a string does not fail.
        let _ = write!(out, "{byte:02x}");
    }
    out
}
