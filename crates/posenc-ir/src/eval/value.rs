//! Values: what is known about an edge of the graph.

use std::sync::Arc;

use ndarray::ArrayD;

use super::Budget;
use super::array::Array;
use super::data::{Data, Shared};
use crate::dtype::DType;
use crate::tensor::{Tensor, padded_count};

/// What is known about a value; each part may be unknown.
#[derive(Clone, Debug, Default)]
pub struct Value {
    /// The element type.
    pub dtype: Option<DType>,
    /// The dimensions, outermost first. Any of them can be multiplied without overflow.
    pub dims: Option<Vec<usize>>,
    /// The elements; where they are known, type and dimensions are known too.
    pub data: Option<Arc<Data>>,
}

impl Value {
    /// An unknown value.
    pub fn unknown() -> Self {
        Self::default()
    }

    /// A value of known type and dimensions, and unknown content.
    pub fn opaque(dtype: DType, dims: impl Into<Vec<usize>>) -> Self {
        Self::shaped(Some(dtype), Some(dims.into()))
    }

    /// A constant. Its elements are converted when they are needed.
    pub fn from_tensor(tensor: &Tensor) -> Self {
        Self {
            dtype: Some(tensor.dtype()),
            dims: Some(tensor.dims().to_vec()),
            data: Some(Arc::new(Data::Stored(tensor.clone()))),
        }
    }

    /// A float32 value (stored as f64).
    pub fn float(array: ArrayD<f64>) -> Self {
        Self::of(Some(DType::F32), Array::Float(array.into_shared()))
    }

    /// An int64 value.
    pub fn int(array: ArrayD<i64>) -> Self {
        Self::of(Some(DType::I64), Array::Int(array.into_shared()))
    }

    /// A bool value.
    pub fn bool(array: ArrayD<bool>) -> Self {
        Self::of(Some(DType::Bool), Array::Bool(array.into_shared()))
    }

    /// The same value with another element type; the elements are not converted.
    #[must_use]
    pub fn with_dtype(mut self, dtype: DType) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// The same value with unknown elements.
    #[must_use]
    pub fn without_data(mut self) -> Self {
        self.data = None;
        self
    }

    /// The number of elements; `None` where the dimensions are unknown or overflow.
    pub fn elements(&self) -> Option<usize> {
        super::shape::elements(self.dims.as_deref()?)
    }

    /// All elements as f64 (bool: 0 or 1); `None` where they are unknown or not real numbers.
    ///
    /// Converts stored constants of any size.
    pub fn to_f64(&self) -> Option<ArrayD<f64>> {
        Some(match self.array(&UNLIMITED)? {
            Array::Float(a) => a.into_owned(),
            Array::Int(a) => a.mapv(|v| v as f64),
            Array::Bool(a) => a.mapv(|v| f64::from(u8::from(v))),
        })
    }

    /// All elements of an integer or bool value (0 or 1); `None` otherwise.
    pub fn to_i64(&self) -> Option<ArrayD<i64>> {
        match self.array(&UNLIMITED)? {
            Array::Float(_) => None,
            Array::Int(a) => Some(a.into_owned()),
            Array::Bool(a) => Some(a.mapv(i64::from)),
        }
    }

    /// All elements of a bool value; `None` otherwise.
    pub fn to_bool(&self) -> Option<ArrayD<bool>> {
        match self.array(&UNLIMITED)? {
            Array::Bool(a) => Some(a.into_owned()),
            _ => None,
        }
    }

    /// The only element as f64; `None` where it is unknown or there is not exactly one.
    pub fn scalar_f64(&self) -> Option<f64> {
        match self.data.as_deref()? {
            Data::Float(a) => only(a),
            Data::Int(a) => only(a).map(|v| v as f64),
            Data::Bool(a) => only(a).map(|v| f64::from(u8::from(v))),
            Data::Stored(t) if self.elements() == Some(1) => t.get_f64(0),
            Data::Stored(_) => None,
        }
    }

    /// The only element of an integer or bool value.
    pub fn scalar_i64(&self) -> Option<i64> {
        match self.data.as_deref()? {
            Data::Float(_) => None,
            Data::Int(a) => only(a),
            Data::Bool(a) => only(a).map(i64::from),
            Data::Stored(t) if self.elements() == Some(1) => t.get_i64(0),
            Data::Stored(_) => None,
        }
    }

    /// The only element of a bool value.
    pub fn scalar_bool(&self) -> Option<bool> {
        (self.dtype == Some(DType::Bool)).then(|| self.scalar_i64().map(|v| v != 0))?
    }

    /// A value without known elements. Dimensions of more elements than memory can have are unknown.
    pub(super) fn shaped(dtype: Option<DType>, dims: Option<Vec<usize>>) -> Self {
        Self {
            dtype,
            dims: dims.filter(|dims| padded_count(dims).is_some()),
            data: None,
        }
    }

    /// A computed value.
    pub(super) fn of(dtype: Option<DType>, array: Array) -> Self {
        Self {
            dtype: dtype.or(Some(array.natural())),
            dims: Some(array.dims().to_vec()),
            data: Some(Arc::new(array.into())),
        }
    }

    /// The elements; a stored constant is converted where the budget allows it.
    pub(super) fn array(&self, budget: &Budget) -> Option<Array> {
        match self.data.as_deref()? {
            Data::Float(a) => Some(Array::Float(a.clone())),
            Data::Int(a) => Some(Array::Int(a.clone())),
            Data::Bool(a) => Some(Array::Bool(a.clone())),
            Data::Stored(t) if budget.allows(t.dims()) => {
                Array::read(t, t.dims(), (0..t.len()).map(Some))
            }
            Data::Stored(_) => None,
        }
    }

    /// The elements of an integer or bool value in row-major order.
    pub(super) fn ints(&self, budget: &Budget) -> Option<Vec<i64>> {
        match self.data.as_deref()? {
            Data::Int(a) => Some(a.iter().copied().collect()),
            Data::Bool(a) => Some(a.iter().map(|v| i64::from(*v)).collect()),
            Data::Stored(t) if budget.allows(t.dims()) => t.to_i64s(),
            Data::Float(_) | Data::Stored(_) => None,
        }
    }
}

/// The budget of conversions by the public methods.
const UNLIMITED: Budget = Budget {
    elements: isize::MAX as usize / 8,
};

fn only<T: Copy>(array: &Shared<T>) -> Option<T> {
    if array.len() == 1 {
        array.first().copied()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::arr0;

    #[test]
    fn scalars_are_read_from_every_kind_of_data_and_only_from_one_element() {
        let one = Value::from_tensor(&Tensor::from_i64(&[1, 1], &[7]));
        assert_eq!((one.scalar_i64(), one.scalar_f64()), (Some(7), Some(7.0)));
        let half = Value::float(arr0(0.5).into_dyn());
        assert_eq!((half.scalar_i64(), half.scalar_f64()), (None, Some(0.5)));
        let yes = Value::from_tensor(&Tensor::from_bool(&[], &[true]));
        assert_eq!((yes.scalar_bool(), yes.scalar_i64()), (Some(true), Some(1)));
        let two = Value::from_tensor(&Tensor::from_i64(&[2], &[7, 7]));
        assert_eq!((two.scalar_i64(), two.scalar_bool()), (None, None));
        assert_eq!(Value::opaque(DType::I64, []).scalar_i64(), None);
    }

    #[test]
    fn dimensions_that_overflow_are_unknown() {
        let most = isize::MAX as usize;
        for dims in [vec![most, 2], vec![most + 1], vec![0, most, 2]] {
            assert_eq!(
                Value::opaque(DType::I64, dims.clone()).dims,
                None,
                "{dims:?}"
            );
        }
        let dims = vec![most, 1];
        assert_eq!(Value::opaque(DType::I64, dims.clone()).dims, Some(dims));
    }

    #[test]
    fn stored_constants_are_converted_within_the_budget_only() {
        let value = Value::from_tensor(&Tensor::from_f32(&[2, 2], &[1.0, 2.0, 3.0, 4.0]));
        assert!(value.array(&Budget { elements: 4 }).is_some());
        assert!(value.array(&Budget { elements: 3 }).is_none());
        let all = value.to_f64().unwrap();
        assert_eq!(
            all.iter().copied().collect::<Vec<_>>(),
            [1.0, 2.0, 3.0, 4.0]
        );
        assert!(value.to_i64().is_none());
    }
}
