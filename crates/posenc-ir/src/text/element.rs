//! The literals of the elements of each type.

use crate::dtype::DType;

/// What one literal of a tensor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    /// A string in quotes.
    Text,
    /// A float; complex elements take two.
    F32,
    /// A double; complex elements take two.
    F64,
    /// An integer with the bits of this many bytes: one element, or as many of 4 or 2 bits as fit.
    Bits(usize),
    /// An integer with the bits of one element of 6 bits.
    Sixes,
}

pub(super) fn element(dtype: DType) -> Element {
    match dtype {
        DType::String => Element::Text,
        DType::F32 | DType::Complex64 => Element::F32,
        DType::F64 | DType::Complex128 => Element::F64,
        DType::F6E2M3 | DType::F6E3M2 => Element::Sixes,
        _ => Element::Bits(dtype.bits().unwrap_or(8).div_ceil(8)),
    }
}

/// The number of literals of a tensor; `None` on overflow and for negative dimensions.
pub(super) fn count(dtype: DType, dims: &[i64]) -> Option<usize> {
    let elements = dims
        .iter()
        .try_fold(1usize, |n, d| n.checked_mul(usize::try_from(*d).ok()?))?;
    match dtype {
        DType::Complex64 | DType::Complex128 => elements.checked_mul(2),
        DType::U4 | DType::I4 | DType::F4E2M1 => Some(elements.div_ceil(2)),
        DType::U2 | DType::I2 => Some(elements.div_ceil(4)),
        _ => Some(elements),
    }
}
