//! Payloads: whether they have the length of their type and dimensions.

use bytes::Bytes;
use prost::Message;

use super::external::Files;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::field::tensor as field;
use crate::model::Model;
use crate::proto::{SparseTensorProto, TensorProto};
use crate::stored::{Payload, Stored, sizes};
use crate::wire;

/// The number of values in each typed list of a tensor.
#[derive(Debug, Default)]
struct Lists {
    float: usize,
    int32: usize,
    string: usize,
    int64: usize,
    double: usize,
    uint64: usize,
}

/// Whether the payload fits the type and the dimensions. Typed lists are counted, not decoded.
pub(super) fn check(model: &Model, stored: &Stored, files: &mut Files) -> Result<()> {
    match &stored.payload {
        Payload::External(external) => files.check(model, stored, external),
        Payload::Raw(bytes) => raw(stored, bytes.len()),
        Payload::Typed(message) => typed(stored, &Lists::count(message)?),
        Payload::Sparse => Ok(()),
    }
}

/// The same for a tensor of an attribute.
pub(super) fn check_tensor(model: &Model, tensor: &TensorProto, files: &mut Files) -> Result<()> {
    let is_typed = tensor.raw_data.is_none() && tensor.data_location != Some(1);
    if !is_typed {
        return check(model, &Stored::from_proto(tensor)?, files);
    }
    let stored = Stored {
        dtype: DType::from_code(tensor.data_type()),
        dims: sizes(&tensor.dims, "a dimension of the tensor is")?,
        payload: Payload::Sparse,
    };
    typed(&stored, &Lists::of(tensor))
}

/// The most bytes that a sparse tensor may have with its zeros: runtimes fill them in.
const MAX_DENSE: u64 = 1 << 40;

/// Checks a sparse tensor: it must have as many indices as values, within its dimensions.
pub(super) fn check_sparse(
    model: &Model,
    sparse: &SparseTensorProto,
    files: &mut Files,
) -> Result<()> {
    let (Some(values), Some(indices)) = (&sparse.values, &sparse.indices) else {
        return Err(Error::invalid(
            "the sparse tensor has no values or no indices",
        ));
    };
    check_tensor(model, values, files)?;
    check_tensor(model, indices, files)?;
    let rank = sparse.dims.len() as i64;
    let fits = match (&*values.dims, &*indices.dims) {
        ([n], [indices]) => n == indices,
        ([n], [indices, each]) => n == indices && *each == rank,
        _ => false,
    };
    if sparse.dims.iter().any(|d| *d < 0) || !fits {
        let why = "the values and indices of the sparse tensor do not fit its dimensions";
        return Err(Error::invalid(why));
    }
    let dims = &sparse.dims;
    let mut sizes = dims.iter().map(|d| usize::try_from(*d).ok());
    let elements = sizes.try_fold(1usize, |n, d| n.checked_mul(d?));
    let dtype = DType::from_code(values.data_type());
    let bytes = |n| dtype.map_or(Some(n), |dtype| dtype.payload(n));
    if elements
        .and_then(bytes)
        .is_none_or(|n| n as u64 > MAX_DENSE)
    {
        let why = format!("the sparse tensor of dimensions {dims:?} is too large for any memory");
        return Err(Error::invalid(why));
    }
    within(model, indices, dims)
}

/// Whether the indices of a sparse tensor are within its dimensions. Absent files are accepted.
fn within(model: &Model, indices: &TensorProto, dims: &[i64]) -> Result<()> {
    let stored = Stored::from_proto(indices)?;
    if stored.dtype != Some(DType::I64) {
        return Err(Error::invalid(
            "the indices of the sparse tensor must be int64",
        ));
    }
    let tensor = match &stored.payload {
        Payload::External(external) => model.graph().external_dir.tensor(external, &stored),
        _ => Some(stored.tensor()?),
    };
    // A flat index counts the elements before it.
    let flat = [dims.iter().product()];
    let limits = if stored.dims.len() == 1 { &flat } else { dims };
    let count = stored.elements().unwrap_or(0);
    let outside = tensor.into_iter().flat_map(|tensor| {
        let at = (0..count).zip(limits.iter().cycle());
        at.filter_map(move |(i, limit)| tensor.get_i64(i).filter(|n| !(0..*limit).contains(n)))
    });
    match { outside }.next() {
        None => Ok(()),
        Some(index) => Err(Error::invalid(format!(
            "index {index} of the sparse tensor is outside of its dimensions {dims:?}"
        ))),
    }
}

fn raw(stored: &Stored, got: usize) -> Result<()> {
    let (dtype, elements) = stored.contents()?;
    let empty_string = dtype.bits().is_none() && elements == 0;
    if dtype.payload(elements) != Some(got) && !empty_string {
        let dims = &stored.dims;
        let why = format!("the payload of {got} bytes does not fit {dtype}{dims:?}");
        return Err(Error::invalid(why));
    }
    Ok(())
}

fn typed(stored: &Stored, lists: &Lists) -> Result<()> {
    let (dtype, elements) = stored.contents()?;
    let (list, got, want) = match dtype {
        DType::F32 => ("float_data", lists.float, Some(elements)),
        DType::Complex64 => ("float_data", lists.float, elements.checked_mul(2)),
        DType::F64 => ("double_data", lists.double, Some(elements)),
        DType::Complex128 => ("double_data", lists.double, elements.checked_mul(2)),
        DType::I64 => ("int64_data", lists.int64, Some(elements)),
        DType::U32 | DType::U64 => ("uint64_data", lists.uint64, Some(elements)),
        DType::String => ("string_data", lists.string, Some(elements)),
        // Types under 8 bits are packed in the list, except for these.
        DType::F6E2M3 | DType::F6E3M2 => ("int32_data", lists.int32, Some(elements)),
        _ if dtype.bits().is_some_and(|b| b < 8) => {
            ("int32_data", lists.int32, dtype.payload(elements))
        }
        _ => ("int32_data", lists.int32, Some(elements)),
    };
    if Some(got) != want {
        let dims = &stored.dims;
        let values = match got {
            1 => format!("1 value of {list} does"),
            _ => format!("{got} values of {list} do"),
        };
        let why = format!("{values} not fit {dtype}{dims:?}");
        return Err(Error::invalid(why));
    }
    Ok(())
}

impl Lists {
    fn of(tensor: &TensorProto) -> Self {
        Self {
            float: tensor.float_data.len(),
            int32: tensor.int32_data.len(),
            string: tensor.string_data.len(),
            int64: tensor.int64_data.len(),
            double: tensor.double_data.len(),
            uint64: tensor.uint64_data.len(),
        }
    }

    /// Counts the values of an encoded `TensorProto`.
    fn count(message: &[u8]) -> Result<Self> {
        let mut lists = Self::default();
        for f in wire::fields(message, 0..message.len()) {
            let f = f?;
            let (list, width) = match f.number {
                4 => (&mut lists.float, Some(4)),
                5 => (&mut lists.int32, None),
                6 => (&mut lists.string, Some(0)),
                7 => (&mut lists.int64, None),
                10 => (&mut lists.double, Some(8)),
                11 => (&mut lists.uint64, None),
                _ => continue,
            };
            debug_assert!(field::TYPED.contains(&f.number));
            let packed = &message[f.payload];
            let more = match width {
                _ if !f.delimited => Some(1),
                Some(0) => Some(1),
                Some(width) => {
                    let whole = packed.len().is_multiple_of(width);
                    whole.then_some(packed.len() / width)
                }
                // Every varint ends with a byte without the high bit.
                None => {
                    let whole = packed.last().is_none_or(|b| b & 0x80 == 0);
                    whole.then(|| packed.iter().filter(|b| **b & 0x80 == 0).count())
                }
            };
            *list += more.ok_or_else(|| Error::decode("a list of values is truncated"))?;
        }
        Ok(lists)
    }
}

/// The sparse tensor of an encoded message.
pub(super) fn sparse(message: Bytes) -> Result<SparseTensorProto> {
    SparseTensorProto::decode(message).map_err(|e| Error::decode(e.to_string()))
}
