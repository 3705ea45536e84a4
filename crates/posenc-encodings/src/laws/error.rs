//! Why parameters make no rotary embedding.

use crate::param::ParameterError;

/// Parameters that make no law.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LawError {
    /// A parameter is missing, or has no effect.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// A value is out of range.
    #[error(transparent)]
    Value(#[from] ScalingError),
}

/// A parameter that no rotary embedding can have. Messages have names of parameters in backticks, so
/// that a command line can write them as flags.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScalingError {
    /// A number that must be finite and above zero.
    #[error("`{name}` must be a finite number above 0, got {value}")]
    NotPositive {
        /// The parameter.
        name: &'static str,
        /// What it was.
        value: f64,
    },
    /// A factor that would shrink the context.
    #[error("`{name}` must be a finite number of at least 1, got {value}")]
    BelowOne {
        /// The parameter.
        name: &'static str,
        /// What it was.
        value: f64,
    },
    /// Lengths that shrink the context, from which a factor would follow.
    #[error(
        "a maximum length of {max_length} is below the original length {original_length}, and \
         without a factor it would shrink the context: give a factor, or a larger maximum length"
    )]
    Shorter {
        /// The length to make room for.
        max_length: usize,
        /// The length that the model was trained on.
        original_length: usize,
    },
    /// A factor beyond any context.
    #[error("`{name}` must be at most {MOST_FACTOR:e}, got {value:e}")]
    TooLarge {
        /// The parameter.
        name: &'static str,
        /// What it was.
        value: f64,
    },
    /// A number that must be finite and not negative.
    #[error("`{name}` must be a finite number of at least 0, got {value}")]
    Negative {
        /// The parameter.
        name: &'static str,
        /// What it was.
        value: f64,
    },
    /// A length of zero.
    #[error("`{name}` must be at least {least}, got {value}")]
    Length {
        /// The parameter.
        name: &'static str,
        /// The smallest length that works.
        least: usize,
        /// What it was.
        value: usize,
    },
    /// Two parameters in the wrong order.
    #[error("`{above}` must be greater than `{below}`, got {high} and {low}")]
    Order {
        /// The parameter that must be the greater one.
        above: &'static str,
        /// The parameter that must be the smaller one.
        below: &'static str,
        /// Value of `above`.
        high: f64,
        /// Value of `below`.
        low: f64,
    },
    /// Two parameters in the wrong order, which may be equal.
    #[error("`{above}` must be at least `{below}`, got {high} and {low}")]
    Reversed {
        /// The parameter that must not be the smaller one.
        above: &'static str,
        /// The parameter that must not be the greater one.
        below: &'static str,
        /// Value of `above`.
        high: f64,
        /// Value of `below`.
        low: f64,
    },
    /// A formula that divides by the logarithm of θ.
    #[error("{law} scaling needs a `theta` above 1, got {theta}")]
    SmallTheta {
        /// The law.
        law: &'static str,
        /// The base θ.
        theta: f64,
    },
    /// A list with another number of entries than pairs.
    #[error("`{name}` must have one entry per rotated pair ({want}), got {got}")]
    ListLength {
        /// The parameter.
        name: &'static str,
        /// Pairs of the rotary embedding.
        want: usize,
        /// Entries of the list.
        got: usize,
    },
    /// An impossible rotary width.
    #[error(
        "rotary width must be even, above 0 and at most the head size {head_dim}, got {rotary_dim}"
    )]
    RotaryDim {
        /// The rotary width.
        rotary_dim: usize,
        /// The head size.
        head_dim: usize,
    },
    /// A formula that divides by `d - 2`.
    #[error("{law} scaling needs a rotary width of at least 4, got {rotary_dim}")]
    OnePair {
        /// The law.
        law: &'static str,
        /// The rotary width.
        rotary_dim: usize,
    },
    /// A share outside 0 to 1.
    #[error("`{name}` must be between 0 and 1, got {value}")]
    Share {
        /// The parameter.
        name: &'static str,
        /// What it was.
        value: f64,
    },
}

impl ScalingError {
    /// The sentence with plain names, for parameters of a file; in backticks they are those of a
    /// request.
    pub fn of_file(&self) -> String {
        self.to_string().replace('`', "")
    }
}

/// Finite and above zero, or an error.
pub(crate) fn positive(name: &'static str, value: f64) -> Result<(), ScalingError> {
    if value.is_finite() && value > 0.0 {
        Ok(())
    } else {
        Err(ScalingError::NotPositive { name, value })
    }
}

/// Finite and not below zero, or an error.
pub(crate) fn not_negative(name: &'static str, value: f64) -> Result<(), ScalingError> {
    if value.is_finite() && value >= 0.0 {
        Ok(())
    } else {
        Err(ScalingError::Negative { name, value })
    }
}

/// The largest factor: a million times what is published, where frequencies still have digits in
/// f32.
const MOST_FACTOR: f64 = 1e9;

/// Not below one and not beyond any context, or an error.
pub(crate) fn factor(name: &'static str, value: f64) -> Result<(), ScalingError> {
    if !value.is_finite() || value < 1.0 {
        Err(ScalingError::BelowOne { name, value })
    } else if value > MOST_FACTOR {
        Err(ScalingError::TooLarge { name, value })
    } else {
        Ok(())
    }
}

/// A length of at least `least`, or an error.
pub(crate) fn length(name: &'static str, least: usize, value: usize) -> Result<(), ScalingError> {
    if value >= least {
        Ok(())
    } else {
        Err(ScalingError::Length { name, least, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_out_of_range_are_refused_in_a_few_words() {
        for value in [1.0, 4.0, 1000.0, MOST_FACTOR] {
            assert_eq!(factor("factor", value), Ok(()));
        }
        let said = |value| factor("factor", value).unwrap_err().to_string();
        for value in [0.0, 0.5, -4.0, f64::NAN, f64::INFINITY] {
            let want = format!("`factor` must be a finite number of at least 1, got {value}");
            assert_eq!(said(value), want);
        }
        assert_eq!(said(1e300), "`factor` must be at most 1e9, got 1e300");
    }
}
