//! The elements of values.

use ndarray::{ArcArray, IxDyn};

use crate::tensor::Tensor;

/// An array that is shared, not copied, when cloned.
pub type Shared<T> = ArcArray<T, IxDyn>;

/// The elements of a value.
#[derive(Clone, Debug)]
pub enum Data {
    /// Elements of any float type.
    Float(Shared<f64>),
    /// Elements of any integer type; uint64 beyond i64 wraps.
    Int(Shared<i64>),
    /// Elements of type bool.
    Bool(Shared<bool>),
    /// A constant in its stored form: read element by element, or converted on demand.
    Stored(Tensor),
}
