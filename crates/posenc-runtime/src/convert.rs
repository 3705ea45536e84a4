//! Conversion between tensors and vectors of Rust numbers.

use half::{bf16, f16};
use posenc_ir::{DType, Tensor};

/// A number of a tensor, little endian.
pub(crate) trait Element: Copy {
    const DTYPE: DType;
    const BYTES: usize;
    /// `bytes` must have the length [`Element::BYTES`].
    fn read(bytes: &[u8]) -> Self;
    fn write(self, out: &mut Vec<u8>);
}

macro_rules! elements {
    ($($t:ty = $dtype:ident),*) => {$(
        impl Element for $t {
            const DTYPE: DType = DType::$dtype;
            const BYTES: usize = size_of::<$t>();
            fn read(bytes: &[u8]) -> Self {
                <$t>::from_le_bytes(bytes.try_into().expect("chunks have the element's length"))
            }
            fn write(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

elements!(
    f32 = F32,
    f64 = F64,
    f16 = F16,
    bf16 = BF16,
    i64 = I64,
    i32 = I32,
    i16 = I16,
    i8 = I8,
    u64 = U64,
    u32 = U32,
    u16 = U16,
    u8 = U8
);

impl Element for bool {
    const DTYPE: DType = DType::Bool;
    const BYTES: usize = 1;
    fn read(bytes: &[u8]) -> Self {
        bytes != [0]
    }
    fn write(self, out: &mut Vec<u8>) {
        out.push(u8::from(self));
    }
}

/// The elements of a tensor whose type is `T`.
pub(crate) fn elements<T: Element>(tensor: &Tensor) -> Vec<T> {
    debug_assert_eq!(tensor.dtype(), T::DTYPE);
    tensor.bytes().chunks_exact(T::BYTES).map(T::read).collect()
}

/// A tensor of these elements; `None` where they do not fill `dims`.
pub(crate) fn tensor<T: Element>(dims: Vec<usize>, values: &[T]) -> Option<Tensor> {
    let mut data = Vec::with_capacity(values.len() * T::BYTES);
    for value in values {
        value.write(&mut data);
    }
    Tensor::new(T::DTYPE, dims, data.into())
}

/// Evaluates `$body` with `$t` as the Rust type of the element type `$dtype`; `$bf16` for bfloat16,
/// which not every runtime has, and `$else` for types without a Rust type.
macro_rules! with_element {
    ($dtype:expr, $t:ident => $body:expr, bf16 => $bf16:expr, else => $else:expr) => {{
        use posenc_ir::DType;
        macro_rules! case {
            ($rust:ty) => {{
                type $t = $rust;
                $body
            }};
        }
        match $dtype {
            DType::F32 => case!(f32),
            DType::F64 => case!(f64),
            DType::F16 => case!(half::f16),
            DType::BF16 => $bf16,
            DType::I64 => case!(i64),
            DType::I32 => case!(i32),
            DType::I16 => case!(i16),
            DType::I8 => case!(i8),
            DType::U64 => case!(u64),
            DType::U32 => case!(u32),
            DType::U16 => case!(u16),
            DType::U8 => case!(u8),
            DType::Bool => case!(bool),
            _ => $else,
        }
    }};
}
pub(crate) use with_element;
