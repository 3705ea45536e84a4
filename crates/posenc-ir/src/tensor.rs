//! Dense tensors in memory.

use bytes::Bytes;
use half::{bf16, f16};

use crate::dtype::DType;

/// The number of elements, with dimensions of 0 counted as 1; `None` where there are more than
/// memory can have. Where it is known, any of the dimensions can be multiplied without overflow.
pub(crate) fn padded_count(dims: &[usize]) -> Option<usize> {
    dims.iter()
        .try_fold(1usize, |n, d| n.checked_mul((*d).max(1)))
        .filter(|n| isize::try_from(*n).is_ok())
}

/// A dense tensor: element type, dimensions and a little-endian payload in row-major order.
///
/// The payload may be a slice of a mapped file: cloning a tensor copies no element.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    dtype: DType,
    dims: Vec<usize>,
    data: Bytes,
}

impl Tensor {
    /// A tensor over an encoded payload; `None` where the payload does not have the length of the
    /// type and the dimensions, or the type is string.
    pub fn new(dtype: DType, dims: Vec<usize>, data: Bytes) -> Option<Self> {
        padded_count(&dims)?;
        let elements = dims.iter().product();
        (dtype.payload(elements)? == data.len()).then_some(Self { dtype, dims, data })
    }

    /// A tensor of any numeric type from f64 values, rounded to the nearest value of the type
    /// (integers: truncated; bool: whether nonzero).
    ///
    /// # Panics
    /// When `values` does not fill `dims`, or the type is not one of bool, integers of 8 bits or
    /// more, and floats of 16 bits or more.
    pub fn from_f64(dtype: DType, dims: &[usize], values: &[f64]) -> Self {
        let mut data = Vec::with_capacity(values.len() * 8);
        for &v in values {
            encode(dtype, v, &mut data);
        }
        Self::new(dtype, dims.to_vec(), data.into()).expect("the values fill the dimensions")
    }

    /// A float tensor.
    ///
    /// # Panics
    /// When `values` does not fill `dims`.
    pub fn from_f32(dims: &[usize], values: &[f32]) -> Self {
        let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Self::new(DType::F32, dims.to_vec(), data.into()).expect("the values fill the dimensions")
    }

    /// An int64 tensor.
    ///
    /// # Panics
    /// When `values` does not fill `dims`.
    pub fn from_i64(dims: &[usize], values: &[i64]) -> Self {
        let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Self::new(DType::I64, dims.to_vec(), data.into()).expect("the values fill the dimensions")
    }

    /// A bool tensor.
    ///
    /// # Panics
    /// When `values` does not fill `dims`.
    pub fn from_bool(dims: &[usize], values: &[bool]) -> Self {
        let data: Vec<u8> = values.iter().map(|v| u8::from(*v)).collect();
        Self::new(DType::Bool, dims.to_vec(), data.into()).expect("the values fill the dimensions")
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The dimensions, outermost first; empty for a scalar.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The payload: little endian, row-major, elements under 8 bits packed low bits first.
    pub fn bytes(&self) -> &Bytes {
        &self.data
    }

    /// Element `i` in row-major order as f64 (bool: 0 or 1; 64-bit integers beyond 2⁵³ rounded);
    /// `None` out of range and for types that are not read (strings, complex, floats under 16 bits).
    pub fn get_f64(&self, i: usize) -> Option<f64> {
        match self.dtype {
            DType::F32 => self.word(i).map(|b| f64::from(f32::from_le_bytes(b))),
            DType::F64 => self.word(i).map(f64::from_le_bytes),
            DType::F16 => self.word(i).map(|b| f16::from_le_bytes(b).to_f64()),
            DType::BF16 => self.word(i).map(|b| bf16::from_le_bytes(b).to_f64()),
            _ => self.get_i64(i).map(|v| v as f64),
        }
    }

    /// Element `i` of an integer or bool tensor (uint64 beyond i64 wraps); `None` otherwise.
    pub fn get_i64(&self, i: usize) -> Option<i64> {
        Some(match self.dtype {
            DType::I64 => i64::from_le_bytes(self.word(i)?),
            DType::U64 => u64::from_le_bytes(self.word(i)?) as i64,
            DType::I32 => i64::from(i32::from_le_bytes(self.word(i)?)),
            DType::U32 => i64::from(u32::from_le_bytes(self.word(i)?)),
            DType::I16 => i64::from(i16::from_le_bytes(self.word(i)?)),
            DType::U16 => i64::from(u16::from_le_bytes(self.word(i)?)),
            DType::I8 => i64::from(i8::from_le_bytes(self.word(i)?)),
            DType::U8 => i64::from(u8::from_le_bytes(self.word(i)?)),
            DType::Bool => i64::from(self.word::<1>(i)? != [0]),
            DType::U4 => i64::from(self.packed(i, 4)?),
            DType::U2 => i64::from(self.packed(i, 2)?),
            DType::I4 => i64::from((self.packed(i, 4)? << 4) as i8 >> 4),
            DType::I2 => i64::from((self.packed(i, 2)? << 6) as i8 >> 6),
            _ => return None,
        })
    }

    /// All elements as f64; `None` for the types that [`Tensor::get_f64`] does not read.
    pub fn to_f64s(&self) -> Option<Vec<f64>> {
        match self.dtype {
            DType::F32 => self.words(|b| f64::from(f32::from_le_bytes(b))),
            DType::F64 => self.words(f64::from_le_bytes),
            DType::F16 => self.words(|b| f16::from_le_bytes(b).to_f64()),
            DType::BF16 => self.words(|b| bf16::from_le_bytes(b).to_f64()),
            _ => (0..self.len()).map(|i| self.get_f64(i)).collect(),
        }
    }

    /// All elements of an integer or bool tensor; `None` for other types.
    pub fn to_i64s(&self) -> Option<Vec<i64>> {
        (0..self.len()).map(|i| self.get_i64(i)).collect()
    }

    /// All elements of N bytes; `None` where some are missing.
    fn words<const N: usize>(&self, read: impl Fn([u8; N]) -> f64) -> Option<Vec<f64>> {
        let (words, _) = self.data.as_chunks::<N>();
        let words = words.get(..self.len())?;
        Some(words.iter().map(|word| read(*word)).collect())
    }

    fn word<const N: usize>(&self, i: usize) -> Option<[u8; N]> {
        let at = i.checked_mul(N)?;
        self.data.get(at..at.checked_add(N)?)?.try_into().ok()
    }

    fn packed(&self, i: usize, bits: usize) -> Option<u8> {
        if i >= self.len() {
            return None;
        }
        let at = i.checked_mul(bits)?;
        let byte = self.data.get(at / 8)?;
        Some((byte >> (at % 8)) & ((1 << bits) - 1))
    }
}

fn encode(dtype: DType, v: f64, out: &mut Vec<u8>) {
    match dtype {
        DType::F32 => out.extend((v as f32).to_le_bytes()),
        DType::F64 => out.extend(v.to_le_bytes()),
        DType::F16 => out.extend(f16::from_f64(v).to_le_bytes()),
        DType::BF16 => out.extend(bf16::from_f64(v).to_le_bytes()),
        DType::I64 => out.extend((v as i64).to_le_bytes()),
        DType::U64 => out.extend((v as u64).to_le_bytes()),
        DType::I32 => out.extend((v as i32).to_le_bytes()),
        DType::U32 => out.extend((v as u32).to_le_bytes()),
        DType::I16 => out.extend((v as i16).to_le_bytes()),
        DType::U16 => out.extend((v as u16).to_le_bytes()),
        DType::I8 => out.extend((v as i8).to_le_bytes()),
        DType::U8 => out.extend((v as u8).to_le_bytes()),
        DType::Bool => out.push(u8::from(v != 0.0)),
        _ => {} // leaves the payload too short: the documented panic of `from_f64`
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_numeric_type_returns_the_values_it_was_made_of() {
        use DType::*;
        for dtype in [F32, F64, F16, BF16, I64, U64, I32, U32, I16, U16, I8, U8] {
            let t = Tensor::from_f64(dtype, &[2, 2], &[0.0, 1.0, 5.0, 100.0]);
            assert_eq!(t.to_f64s().unwrap(), [0.0, 1.0, 5.0, 100.0], "{dtype}");
            assert_eq!(t.get_f64(4), None, "{dtype}");
        }
        let others = [String, Complex64, U4, I4, F8E5M2, F4E2M1];
        assert!(others.iter().all(|t| !t.is_writable()));
        assert!([Bool, U8, I64, BF16].iter().all(|t| t.is_writable()));
    }

    #[test]
    fn packed_elements_are_read_low_bits_first_and_keep_their_sign() {
        let t = Tensor::new(DType::I4, vec![3], Bytes::from_static(&[0xf1, 0x07])).unwrap();
        assert_eq!(t.to_i64s().unwrap(), [1, -1, 7]);
        let t = Tensor::new(DType::U2, vec![4], Bytes::from_static(&[0b11_10_01_00])).unwrap();
        assert_eq!(t.to_i64s().unwrap(), [0, 1, 2, 3]);
    }

    #[test]
    fn a_payload_of_the_wrong_length_is_refused() {
        for (dims, bytes) in [(vec![2], 4), (vec![2], 12), (vec![usize::MAX, 8], 8)] {
            assert!(Tensor::new(DType::F32, dims, vec![0; bytes].into()).is_none());
        }
    }
}
