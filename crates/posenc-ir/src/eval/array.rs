//! Arrays of three element types, and operations on all of them.

use std::borrow::Cow;

use ndarray::{ArrayD, IxDyn};

use super::data::{Data, Shared};
use crate::dtype::DType;
use crate::tensor::Tensor;

/// Known elements.
#[derive(Clone, Debug)]
pub(super) enum Array {
    Float(Shared<f64>),
    Int(Shared<i64>),
    Bool(Shared<bool>),
}

/// Evaluates `body` for the array of any element type, and wraps the result.
macro_rules! each {
    ($array:expr, |$a:ident| $body:expr) => {
        match $array {
            $crate::eval::array::Array::Float($a) => $crate::eval::array::Array::Float($body),
            $crate::eval::array::Array::Int($a) => $crate::eval::array::Array::Int($body),
            $crate::eval::array::Array::Bool($a) => $crate::eval::array::Array::Bool($body),
        }
    };
}

/// The same for two arrays of one element type; `None` where the types differ.
macro_rules! each_pair {
    ($left:expr, $right:expr, |$a:ident, $b:ident| $body:expr) => {{
        use $crate::eval::array::Array;
        match ($left, $right) {
            (Array::Float($a), Array::Float($b)) => Some(Array::Float($body)),
            (Array::Int($a), Array::Int($b)) => Some(Array::Int($body)),
            (Array::Bool($a), Array::Bool($b)) => Some(Array::Bool($body)),
            _ => None,
        }
    }};
}

pub(super) use {each, each_pair};

impl Array {
    /// The dimensions.
    pub(super) fn dims(&self) -> &[usize] {
        match self {
            Self::Float(a) => a.shape(),
            Self::Int(a) => a.shape(),
            Self::Bool(a) => a.shape(),
        }
    }

    /// The element type of a value that has no other.
    pub(super) fn natural(&self) -> DType {
        match self {
            Self::Float(_) => DType::F32,
            Self::Int(_) => DType::I64,
            Self::Bool(_) => DType::Bool,
        }
    }

    /// The elements as f64.
    pub(super) fn floats(self) -> Option<Shared<f64>> {
        match self {
            Self::Float(a) => Some(a),
            _ => None,
        }
    }

    /// The elements as i64.
    pub(super) fn ints(self) -> Option<Shared<i64>> {
        match self {
            Self::Int(a) => Some(a),
            _ => None,
        }
    }

    /// The elements as bool.
    pub(super) fn bools(self) -> Option<Shared<bool>> {
        match self {
            Self::Bool(a) => Some(a),
            _ => None,
        }
    }

    /// The elements of `tensor` at these indices in row-major order, as an array of `dims`. `None`
    /// where an index is `None` or out of range, the indices do not fill `dims`, or the element type
    /// is not supported.
    pub(super) fn read(
        tensor: &Tensor,
        dims: &[usize],
        at: impl Iterator<Item = Option<usize>>,
    ) -> Option<Self> {
        let dtype = tensor.dtype();
        Some(if dtype == DType::Bool {
            let all: Option<Vec<bool>> = at.map(|i| Some(tensor.get_i64(i?)? != 0)).collect();
            Self::Bool(from_vec(dims, all?)?)
        } else if dtype.is_int() {
            let all: Option<Vec<i64>> = at.map(|i| tensor.get_i64(i?)).collect();
            Self::Int(from_vec(dims, all?)?)
        } else {
            let all: Option<Vec<f64>> = at.map(|i| tensor.get_f64(i?)).collect();
            Self::Float(from_vec(dims, all?)?)
        })
    }

    /// The same elements in row-major order under other dimensions.
    pub(super) fn reshaped(self, dims: &[usize]) -> Option<Self> {
        Some(each!(self, |a| reshape(a, dims)?))
    }
}

impl From<Array> for Data {
    fn from(array: Array) -> Self {
        match array {
            Array::Float(a) => Self::Float(a),
            Array::Int(a) => Self::Int(a),
            Array::Bool(a) => Self::Bool(a),
        }
    }
}

/// An array over elements in row-major order; `None` where they do not fill `dims`.
pub(super) fn from_vec<T: Clone>(dims: &[usize], elements: Vec<T>) -> Option<Shared<T>> {
    let array = ArrayD::from_shape_vec(IxDyn(dims), elements).ok()?;
    Some(array.into_shared())
}

/// The same elements in row-major order under other dimensions; shared where possible.
pub(super) fn reshape<T: Clone>(array: Shared<T>, dims: &[usize]) -> Option<Shared<T>> {
    array.into_shape_clone(IxDyn(dims)).ok()
}

/// The elements in row-major order.
pub(super) fn flat<T: Clone>(array: &Shared<T>) -> Cow<'_, [T]> {
    match array.as_slice() {
        Some(slice) => Cow::Borrowed(slice),
        // Faster than an iteration over the elements.
        None => Cow::Owned(
            array
                .as_standard_layout()
                .into_owned()
                .into_raw_vec_and_offset()
                .0,
        ),
    }
}
