//! Errors of operators.

/// A node that cannot be evaluated because it breaks a rule of its operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct EvalError {
    /// The rule.
    pub why: Why,
}

/// The reasons of an [`EvalError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// A required input is omitted.
    #[error("required input {0} is omitted")]
    NoInput(usize),
    /// A required attribute is missing, or an attribute has another type or an invalid value.
    #[error("attribute {0} is missing or invalid")]
    Attribute(&'static str),
    /// A parameter that is an input or attribute (axes, repeats, pads) has an invalid length or
    /// value.
    #[error("parameter {0} is invalid")]
    Parameter(&'static str),
    /// An axis is out of range, or given twice.
    #[error("an axis is out of range or given twice")]
    Axis,
    /// An input has a rank that the operator does not support.
    #[error("an input has a rank that the operator does not support")]
    Rank,
    /// The dimensions of the inputs do not fit each other.
    #[error("the shapes of the inputs do not fit each other")]
    Shapes,
    /// A dimension would be negative or too large.
    #[error("a dimension is negative or too large")]
    Dimension,
    /// A target of a probe cannot be computed from the given values.
    #[error("the value cannot be computed from the given values")]
    NotReached,
}

impl From<Why> for EvalError {
    fn from(why: Why) -> Self {
        Self { why }
    }
}
