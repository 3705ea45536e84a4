//! Why an operator cannot be evaluated.

/// Why an operator has no result: the node breaks a rule of its operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Miss {
    /// The rule.
    pub why: Why,
}

/// The reasons of a [`Miss`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// A required input is left out.
    #[error("input {0} is left out")]
    NoInput(usize),
    /// An attribute is absent though required, of another type, or has an impossible value.
    #[error("attribute {0} is missing or unusable")]
    Attribute(&'static str),
    /// A parameter that is an input or attribute (axes, repeats, pads) has another length or
    /// value than the operator takes.
    #[error("parameter {0} is unusable")]
    Parameter(&'static str),
    /// An axis lies outside the rank, or stands twice.
    #[error("an axis lies outside the rank")]
    Axis,
    /// An input has another rank than the operator takes.
    #[error("an input has another rank than the operator takes")]
    Rank,
    /// The dimensions of the inputs contradict each other.
    #[error("the shapes do not fit together")]
    Shapes,
    /// A dimension would be negative or beyond what can be counted.
    #[error("a dimension is negative or too large")]
    Dimension,
    /// A target of a probe is not reached.
    #[error("the value does not follow from what is given")]
    NotReached,
}

impl From<Why> for Miss {
    fn from(why: Why) -> Self {
        Self { why }
    }
}
