//! A node with its inputs, from which operators read their parameters.

use super::array::Array;
use super::{Budget, EvalError, Value, Why};
use crate::dtype::DType;
use crate::node::Node;

/// The outputs of an operator, in order.
pub(super) type Outputs = Result<Vec<Value>, EvalError>;

/// A node that is evaluated.
pub(super) struct Call<'a> {
    pub(super) node: &'a Node,
    pub(super) opset: i64,
    pub(super) inputs: &'a [Option<&'a Value>],
    pub(super) budget: &'a Budget,
}

/// A parameter that may be an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Given<T> {
    /// Omitted.
    Absent,
    /// An input with unknown elements.
    Unknown,
    /// Read from the attribute or the input.
    Known(T),
}

impl<'a> Call<'a> {
    /// Input `i`; `None` where it is omitted.
    pub(super) fn at(&self, i: usize) -> Option<&'a Value> {
        self.inputs.get(i).copied().flatten()
    }

    /// The required input `i`.
    pub(super) fn need(&self, i: usize) -> Result<&'a Value, EvalError> {
        self.at(i).ok_or(Why::NoInput(i).into())
    }

    /// The dimensions of input `i`, where they are known.
    pub(super) fn dims(&self, i: usize) -> Option<&'a [usize]> {
        self.at(i)?.dims.as_deref()
    }

    /// The element type of input `i`, where it is known.
    pub(super) fn dtype(&self, i: usize) -> Option<DType> {
        self.at(i)?.dtype
    }

    /// The elements of input `i`.
    pub(super) fn array(&self, i: usize) -> Option<Array> {
        self.at(i)?.array(self.budget)
    }

    /// The elements of all inputs that are not omitted; `None` where any are unknown.
    pub(super) fn arrays(&self) -> Option<Vec<Array>> {
        let given = self.inputs.iter().flatten();
        given.map(|v| v.array(self.budget)).collect()
    }

    /// The number of outputs that the node declares.
    pub(super) fn outputs(&self) -> usize {
        self.node.outputs().len()
    }

    /// An integer attribute.
    pub(super) fn int(&self, name: &'static str) -> Result<Option<i64>, EvalError> {
        Ok(self.node.int(name).map_err(|_| Why::Attribute(name))?)
    }

    /// An integer attribute that is a flag.
    pub(super) fn flag(&self, name: &'static str) -> Result<bool, EvalError> {
        Ok(self.int(name)?.unwrap_or(0) != 0)
    }

    /// A float attribute.
    pub(super) fn float(&self, name: &'static str) -> Result<Option<f64>, EvalError> {
        Ok(self.node.float(name).map_err(|_| Why::Attribute(name))?)
    }

    /// An attribute with a list of integers.
    pub(super) fn ints(&self, name: &'static str) -> Result<Option<&'a [i64]>, EvalError> {
        Ok(self.node.ints(name).map_err(|_| Why::Attribute(name))?)
    }

    /// A string attribute.
    pub(super) fn string(&self, name: &'static str) -> Result<Option<&'a str>, EvalError> {
        Ok(self.node.string(name).map_err(|_| Why::Attribute(name))?)
    }

    /// An attribute with the number of an element type; `None` where it is absent or 0.
    pub(super) fn type_attribute(&self, name: &'static str) -> Result<Option<DType>, EvalError> {
        match self.int(name)? {
            None | Some(0) => Ok(None),
            Some(code) => {
                let dtype = i32::try_from(code).ok().and_then(DType::from_code);
                Ok(Some(dtype.ok_or(Why::Attribute(name))?))
            }
        }
    }

    /// A list of integers that is an attribute in some versions and an input in others.
    pub(super) fn list(
        &self,
        attribute: &'static str,
        input: usize,
    ) -> Result<Given<Vec<i64>>, EvalError> {
        if let Some(list) = self.ints(attribute)? {
            return Ok(Given::Known(list.to_vec()));
        }
        Ok(self.input_list(input))
    }

    /// A list of integers that is an input.
    pub(super) fn input_list(&self, input: usize) -> Given<Vec<i64>> {
        match self.at(input) {
            None => Given::Absent,
            Some(value) => match value.ints(self.budget) {
                Some(list) => Given::Known(list),
                None => Given::Unknown,
            },
        }
    }

    /// An integer that is an attribute in some versions and an input in others.
    pub(super) fn number(
        &self,
        attribute: &'static str,
        input: usize,
    ) -> Result<Given<i64>, EvalError> {
        if let Some(number) = self.int(attribute)? {
            return Ok(Given::Known(number));
        }
        Ok(match self.at(input) {
            None => Given::Absent,
            Some(value) => match value.scalar_i64() {
                Some(number) => Given::Known(number),
                None => Given::Unknown,
            },
        })
    }

    /// A value of these dimensions, with data where the budget allows it and `compute` gives it.
    pub(super) fn value(
        &self,
        dtype: Option<DType>,
        dims: Vec<usize>,
        compute: impl FnOnce(&[usize]) -> Option<Array>,
    ) -> Value {
        let array = self.budget.allows(&dims).then(|| compute(&dims)).flatten();
        match array.filter(|a| a.dims() == dims) {
            Some(array) => Value::of(dtype, array),
            None => Value::shaped(dtype, Some(dims)),
        }
    }

    /// The one output of an operator that keeps the dimensions of input 0.
    pub(super) fn map(
        &self,
        dtype: Option<DType>,
        compute: impl FnOnce(Array) -> Option<Array>,
    ) -> Outputs {
        let x = self.need(0)?;
        Ok(vec![match &x.dims {
            Some(dims) => self.value(dtype, dims.clone(), |_| compute(self.array(0)?)),
            None => Value::shaped(dtype, None),
        }])
    }
}

/// One output of which only the element type is known.
pub(super) fn typed(dtype: Option<DType>) -> Outputs {
    Ok(vec![Value::shaped(dtype, None)])
}
