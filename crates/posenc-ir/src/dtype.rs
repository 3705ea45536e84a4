//! Element types.

use std::fmt;

/// The element type of a tensor, numbered as in the file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // the names are the documentation
#[repr(i32)]
pub enum DType {
    F32 = 1,
    U8 = 2,
    I8 = 3,
    U16 = 4,
    I16 = 5,
    I32 = 6,
    I64 = 7,
    String = 8,
    Bool = 9,
    F16 = 10,
    F64 = 11,
    U32 = 12,
    U64 = 13,
    Complex64 = 14,
    Complex128 = 15,
    BF16 = 16,
    F8E4M3FN = 17,
    F8E4M3FNUZ = 18,
    F8E5M2 = 19,
    F8E5M2FNUZ = 20,
    U4 = 21,
    I4 = 22,
    F4E2M1 = 23,
    F8E8M0 = 24,
    U2 = 25,
    I2 = 26,
    F6E2M3 = 27,
    F6E3M2 = 28,
}

/// Every type with its name in the text syntax and its width in bits (0: variable).
const TABLE: &[(DType, &str, usize)] = &[
    (DType::F32, "float", 32),
    (DType::U8, "uint8", 8),
    (DType::I8, "int8", 8),
    (DType::U16, "uint16", 16),
    (DType::I16, "int16", 16),
    (DType::I32, "int32", 32),
    (DType::I64, "int64", 64),
    (DType::String, "string", 0),
    (DType::Bool, "bool", 8),
    (DType::F16, "float16", 16),
    (DType::F64, "double", 64),
    (DType::U32, "uint32", 32),
    (DType::U64, "uint64", 64),
    (DType::Complex64, "complex64", 64),
    (DType::Complex128, "complex128", 128),
    (DType::BF16, "bfloat16", 16),
    (DType::F8E4M3FN, "float8e4m3fn", 8),
    (DType::F8E4M3FNUZ, "float8e4m3fnuz", 8),
    (DType::F8E5M2, "float8e5m2", 8),
    (DType::F8E5M2FNUZ, "float8e5m2fnuz", 8),
    (DType::U4, "uint4", 4),
    (DType::I4, "int4", 4),
    (DType::F4E2M1, "float4e2m1", 4),
    (DType::F8E8M0, "float8e8m0", 8),
    (DType::U2, "uint2", 2),
    (DType::I2, "int2", 2),
    (DType::F6E2M3, "float6e2m3", 6),
    (DType::F6E3M2, "float6e3m2", 6),
];

impl DType {
    /// The type with this number in the file format; `None` for 0 and unknown numbers.
    pub fn from_code(code: i32) -> Option<Self> {
        TABLE.iter().map(|row| row.0).find(|t| *t as i32 == code)
    }

    /// The number in the file format.
    pub fn code(self) -> i32 {
        self as i32
    }

    /// The name in the ONNX text syntax.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The type with this name in the ONNX text syntax.
    pub fn from_name(name: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// Bits an element takes in a payload; elements under 8 bits are packed, low bits first.
    /// `None` for strings.
    pub fn bits(self) -> Option<usize> {
        Some(self.row().2).filter(|bits| *bits > 0)
    }

    /// Bytes a payload of `elements` takes; `None` for strings and on overflow.
    pub fn payload(self, elements: usize) -> Option<usize> {
        Some(elements.checked_mul(self.bits()?)?.div_ceil(8))
    }

    /// Whether [`Tensor::from_f64`](crate::Tensor::from_f64) can fill a tensor of the type.
    pub fn is_writable(self) -> bool {
        let whole = self.is_int() && self.payload(2) > Some(1);
        whole || self == Self::Bool || self.epsilon().is_some()
    }

    /// Whether the type is of real numbers with a fraction.
    pub fn is_float(self) -> bool {
        self.epsilon().is_some()
            || matches!(
                self,
                Self::F8E4M3FN
                    | Self::F8E4M3FNUZ
                    | Self::F8E5M2
                    | Self::F8E5M2FNUZ
                    | Self::F4E2M1
                    | Self::F8E8M0
                    | Self::F6E2M3
                    | Self::F6E3M2
            )
    }

    /// Whether the type is of integers.
    pub fn is_int(self) -> bool {
        matches!(
            self,
            Self::U8
                | Self::I8
                | Self::U16
                | Self::I16
                | Self::I32
                | Self::I64
                | Self::U32
                | Self::U64
                | Self::U4
                | Self::I4
                | Self::U2
                | Self::I2
        )
    }

    /// Distance from 1 to the next number of a float type of 16 bits or more.
    pub fn epsilon(self) -> Option<f64> {
        match self {
            Self::F64 => Some(f64::EPSILON),
            Self::F32 => Some(f64::from(f32::EPSILON)),
            Self::F16 => Some(half::f16::EPSILON.to_f64()),
            Self::BF16 => Some(half::bf16::EPSILON.to_f64()),
            _ => None,
        }
    }

    fn row(self) -> &'static (Self, &'static str, usize) {
        TABLE
            .iter()
            .find(|row| row.0 == self)
            .expect("the table lists every type")
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_identify_the_type() {
        for (dtype, name, _) in TABLE {
            assert_eq!(DType::from_code(dtype.code()), Some(*dtype));
            assert_eq!(DType::from_name(name), Some(*dtype));
        }
        for code in [0, -1, 29, i32::MAX] {
            assert_eq!(DType::from_code(code), None, "{code}");
        }
    }

    #[test]
    fn packed_payloads_round_up_to_bytes() {
        assert_eq!(DType::I4.payload(3), Some(2));
        assert_eq!(DType::U2.payload(5), Some(2));
        assert_eq!(DType::F32.payload(3), Some(12));
        assert_eq!(DType::String.payload(1), None);
        assert_eq!(DType::F64.payload(usize::MAX), None);
    }
}
