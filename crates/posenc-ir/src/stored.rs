//! Stored tensors: raw, in typed lists, or in another file.

use std::collections::BTreeSet;
use std::ops::Range;

use bytes::Bytes;
use prost::Message;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::field::tensor as field;
use crate::proto::TensorProto;
use crate::tensor::{Tensor, padded_count};
use crate::wire;

/// A stored tensor: its type and shape, and where its payload is.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The element type; `None` for an unknown number.
    pub dtype: Option<DType>,
    /// The dimensions.
    pub dims: Vec<usize>,
    /// Where the payload is.
    pub payload: Payload,
}

/// Where the payload of a tensor is.
#[derive(Clone, Debug)]
pub enum Payload {
    /// Little-endian bytes.
    Raw(Bytes),
    /// An encoded `TensorProto` with typed lists (`float_data` and the like).
    Typed(Bytes),
    /// Bytes of another file.
    External(External),
    /// A sparse tensor, whose values are not read.
    Sparse,
}

/// A payload in another file.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct External {
    /// The path of the file, relative to the model's folder.
    pub location: String,
    /// The offset of the first byte.
    pub offset: u64,
    /// The number of bytes; `None` for all up to the end of the file.
    pub length: Option<u64>,
    /// Other entries, such as `checksum`.
    pub others: Vec<(String, String)>,
}

/// Dimensions as sizes; `what` begins the sentence about one that is none.
pub(crate) fn sizes(dims: &[i64], what: &str) -> Result<Vec<usize>> {
    let size = |d: &i64| {
        usize::try_from(*d).map_err(|_| {
            let why = match *d < 0 {
                true => "negative",
                // Where addresses have 32 bits.
                false => "too large for the memory of this program",
            };
            Error::invalid(format!("{what} {why}"))
        })
    };
    dims.iter().map(size).collect()
}

impl Stored {
    /// Reads the `TensorProto` at `within` without its payload; returns it with the tensor's name.
    pub(crate) fn read(source: &Bytes, within: Range<usize>) -> Result<(String, Self)> {
        let mut head = Vec::new();
        let mut raw = None;
        let mut typed = false;
        for f in wire::fields(source, within.clone()) {
            let f = f?;
            match f.number {
                field::RAW_DATA if f.delimited => raw = Some(f.payload),
                n if field::TYPED.contains(&n) => typed = true,
                _ => head.extend_from_slice(&source[f.span]),
            }
        }
        let head =
            TensorProto::decode(head.as_slice()).map_err(|e| Error::decode(e.to_string()))?;
        let name = head.name().to_owned();
        let stored = Self::of(head, |external| match (external, raw, typed) {
            (Some(external), ..) => Payload::External(external),
            (None, Some(raw), _) => Payload::Raw(source.slice(raw)),
            (None, None, true) => Payload::Typed(source.slice(within)),
            (None, None, false) => Payload::Raw(Bytes::new()),
        });
        Ok((name.clone(), stored.map_err(|e| e.at(name))?))
    }

    /// The tensor of an attribute.
    pub(crate) fn from_proto(proto: &TensorProto) -> Result<Self> {
        let head = TensorProto {
            dims: proto.dims.clone(),
            data_type: proto.data_type,
            external_data: proto.external_data.clone(),
            data_location: proto.data_location,
            ..Default::default()
        };
        Self::of(head, |external| match (external, &proto.raw_data) {
            (Some(external), _) => Payload::External(external),
            (None, Some(raw)) => Payload::Raw(raw.clone()),
            (None, None) => Payload::Typed(proto.encode_to_vec().into()),
        })
    }

    fn of(head: TensorProto, payload: impl FnOnce(Option<External>) -> Payload) -> Result<Self> {
        let dims = sizes(&head.dims, "a dimension of the tensor is")?;
        // Without this location, external entries are ignored.
        let is_external = head.data_location == Some(1);
        let external = is_external.then(|| External::read(&head)).transpose()?;
        Ok(Self {
            dtype: DType::from_code(head.data_type()),
            dims,
            payload: payload(external),
        })
    }

    /// The number of elements; `None` on overflow.
    pub fn elements(&self) -> Option<usize> {
        padded_count(&self.dims)?;
        Some(self.dims.iter().product())
    }

    /// The type and the number of elements.
    pub(crate) fn contents(&self) -> Result<(DType, usize)> {
        let unknown = || Error::invalid("the element type of the tensor is unknown");
        let overflow = || format!("the tensor's dimensions {:?} overflow", self.dims);
        let elements = || self.elements().ok_or_else(|| Error::invalid(overflow()));
        Ok((self.dtype.ok_or_else(unknown)?, elements()?))
    }

    /// The tensor, where it is dense and numeric and its payload is in the model.
    ///
    /// # Errors
    /// When the payload does not have the length of the type and the dimensions; when it is
    /// external, sparse, or contains strings.
    pub fn tensor(&self) -> Result<Tensor> {
        let (dtype, elements) = self.contents()?;
        let bytes = match &self.payload {
            Payload::Raw(bytes) => bytes.clone(),
            Payload::Typed(message) => typed(dtype, elements, message)?,
            Payload::External(e) => {
                let why = format!("the tensor is stored in {}", e.location);
                return Err(Error::unsupported(why));
            }
            Payload::Sparse => return Err(Error::unsupported("the tensor is sparse")),
        };
        let got = bytes.len();
        Tensor::new(dtype, self.dims.clone(), bytes).ok_or_else(|| {
            let dims = &self.dims;
            Error::invalid(match dtype.payload(elements) {
                Some(want) => {
                    format!("the payload has {got} bytes, but {dtype}{dims:?} needs {want}")
                }
                None => format!("a tensor of {dtype} has no dense payload"),
            })
        })
    }
}

impl External {
    fn read(head: &TensorProto) -> Result<Self> {
        let mut this = Self::default();
        let mut keys = BTreeSet::new();
        for entry in &head.external_data {
            if !keys.insert(entry.key()) {
                let key = entry.key();
                return Err(Error::invalid(format!("external {key} is given twice")));
            }
            let number = || {
                let wrong = || {
                    format!(
                        "external {} is not a valid number: {}",
                        entry.key(),
                        entry.value()
                    )
                };
                entry.value().parse().map_err(|_| Error::invalid(wrong()))
            };
            match entry.key() {
                "location" => this.location = entry.value().to_owned(),
                "offset" => this.offset = number()?,
                "length" => this.length = Some(number()?),
                key => this.others.push((key.to_owned(), entry.value().to_owned())),
            }
        }
        if this.location.is_empty() {
            return Err(Error::invalid("the external tensor has no location"));
        }
        Ok(this)
    }

    /// The number of bytes of the payload, which must be that of the type and the dimensions.
    pub(crate) fn expected_length(&self, stored: &Stored) -> Result<u64> {
        let (dtype, elements) = stored.contents()?;
        let Some(want) = dtype.payload(elements).and_then(|n| u64::try_from(n).ok()) else {
            let why =
                format!("its external data of {elements} elements of {dtype} has no known length");
            return Err(Error::invalid(why));
        };
        match self.length.filter(|length| *length != want) {
            Some(length) => {
                let why = format!("its external data has {length} bytes, but it needs {want}");
                Err(Error::invalid(why))
            }
            None => Ok(want),
        }
    }
}

/// The little-endian payload of a typed list.
fn typed(dtype: DType, elements: usize, message: &Bytes) -> Result<Bytes> {
    let proto = TensorProto::decode(message.clone()).map_err(|e| Error::decode(e.to_string()))?;
    let mut out = Vec::with_capacity(dtype.payload(elements).unwrap_or(0).min(message.len() * 8));
    match dtype {
        DType::F32 | DType::Complex64 => {
            out.extend(proto.float_data.iter().flat_map(|v| v.to_le_bytes()));
        }
        DType::F64 | DType::Complex128 => {
            out.extend(proto.double_data.iter().flat_map(|v| v.to_le_bytes()));
        }
        DType::I64 => out.extend(proto.int64_data.iter().flat_map(|v| v.to_le_bytes())),
        DType::U64 => out.extend(proto.uint64_data.iter().flat_map(|v| v.to_le_bytes())),
        DType::U32 => {
            out.extend(
                proto
                    .uint64_data
                    .iter()
                    .flat_map(|v| (*v as u32).to_le_bytes()),
            );
        }
        DType::String => return Err(Error::unsupported("a tensor of strings has no numbers")),
        // One element per entry, while raw payloads are packed.
        DType::F6E2M3 | DType::F6E3M2 => out = packed(&proto.int32_data),
        // Narrower types are in int32_data; elements under 8 bits are packed there too.
        _ => {
            let width = dtype.bits().unwrap_or(8).div_ceil(8);
            for v in &proto.int32_data {
                out.extend_from_slice(&v.to_le_bytes()[..width]);
            }
        }
    }
    Ok(out.into())
}

/// Packs elements of six bits, low bits first.
pub(crate) fn packed(values: &[i32]) -> Vec<u8> {
    let mut out = vec![0; (values.len() * 6).div_ceil(8)];
    for (i, value) in values.iter().enumerate() {
        let bits = u16::from(value.to_le_bytes()[0] & 0x3f) << (i * 6 % 8);
        let [low, high] = bits.to_le_bytes();
        let at = i * 6 / 8;
        out[at] |= low;
        if let Some(next) = out.get_mut(at + 1) {
            *next |= high;
        }
    }
    out
}

#[cfg(test)]
mod tests;
