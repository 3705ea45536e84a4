//! Parameters as data: what a family or a law declares about each of them, and the values that a
//! request gives.
//!
//! From a [`Param`] follow the flag of the command line with its help, the key of records and
//! configurations, the check that a given value has an effect, and the tables of the
//! documentation.

use std::collections::BTreeMap;
use std::fmt;

/// A parameter of a family or a law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Param {
    /// Its name with hyphens: `beta-fast` is the flag `--beta-fast` and the key `beta_fast`.
    pub name: &'static str,
    /// The values that it takes.
    pub values: Values,
    /// What it means, as a phrase without a full stop.
    pub help: &'static str,
    /// Its unit; empty for a pure number.
    pub unit: &'static str,
    /// The value where none is given, in words.
    pub default: &'static str,
}

impl Param {
    /// The key in JSON: the name with underscores.
    pub fn key(&self) -> String {
        self.name.replace('-', "_")
    }
}

/// The values that a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// A number above 0.
    Positive,
    /// A number, 0 or above.
    NotNegative,
    /// A whole number above 0.
    Count,
    /// Numbers, as a list or a file.
    Numbers,
    /// Given or not; a flag that takes no value.
    Switch,
    /// True or false; a flag whose value may be left out for true.
    Bool,
    /// One of these words.
    Word(&'static [&'static str]),
}

impl Values {
    /// Whether a value is one of them.
    pub fn contain(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Positive, Value::Number(n)) => n.is_finite() && *n > 0.0,
            (Self::NotNegative, Value::Number(n)) => n.is_finite() && *n >= 0.0,
            (Self::Count, Value::Count(n)) => *n > 0,
            (Self::Numbers, Value::Numbers(_)) | (Self::Switch | Self::Bool, Value::Bool(_)) => {
                true
            }
            (Self::Word(words), Value::Word(word)) => words.contains(word),
            _ => false,
        }
    }
}

/// A value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of [`Values::Positive`] and [`Values::NotNegative`].
    Number(f64),
    /// Of [`Values::Count`].
    Count(usize),
    /// Of [`Values::Numbers`].
    Numbers(Vec<f64>),
    /// Of [`Values::Switch`] and [`Values::Bool`].
    Bool(bool),
    /// Of [`Values::Word`].
    Word(&'static str),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Count(count) => count.fmt(f),
            Self::Numbers(numbers) => write!(f, "{numbers:?}"),
            Self::Bool(bool) => bool.fmt(f),
            Self::Word(word) => f.write_str(word),
        }
    }
}

/// The values that a request gives, by the names of their parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Given(BTreeMap<&'static str, Value>);

impl Given {
    /// Gives a parameter this value in place of the one that it has.
    pub fn set(&mut self, param: &Param, value: Value) {
        self.0.insert(param.name, value);
    }

    /// The value of a parameter.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// The value of a parameter that takes a number.
    pub fn number(&self, name: &str) -> Option<f64> {
        match self.get(name)? {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The value of a parameter that takes a whole number.
    pub fn count(&self, name: &str) -> Option<usize> {
        match self.get(name)? {
            Value::Count(count) => Some(*count),
            _ => None,
        }
    }

    /// The value of a parameter that takes several numbers.
    pub fn numbers(&self, name: &str) -> Option<&[f64]> {
        match self.get(name)? {
            Value::Numbers(numbers) => Some(numbers),
            _ => None,
        }
    }

    /// The value of a parameter that is true or false.
    pub fn bool(&self, name: &str) -> Option<bool> {
        match self.get(name)? {
            Value::Bool(bool) => Some(*bool),
            _ => None,
        }
    }

    /// The value of a parameter that takes one of several words.
    pub fn word(&self, name: &str) -> Option<&'static str> {
        match self.get(name)? {
            Value::Word(word) => Some(word),
            _ => None,
        }
    }

    /// The names of what is given, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    /// Whether nothing is given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Refuses a value that `of`, which takes these parameters, would ignore.
    ///
    /// # Errors
    /// [`ParameterError::Ineffective`] with the first such parameter.
    pub fn only(&self, of: &str, params: &[Param]) -> Result<(), ParameterError> {
        let is_known = |name: &&str| params.iter().any(|param| param.name == *name);
        match self.names().find(|name| !is_known(name)) {
            None => Ok(()),
            Some(parameter) => Err(ParameterError::Ineffective {
                parameter,
                of: of.to_owned(),
            }),
        }
    }
}

impl FromIterator<(&'static str, Value)> for Given {
    fn from_iter<T: IntoIterator<Item = (&'static str, Value)>>(values: T) -> Self {
        Self(values.into_iter().collect())
    }
}

/// A parameter that is missing or that has no effect. Messages name the parameter; a command line
/// adds the two hyphens of its flag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// A value is needed and not given.
    #[error("{of} needs {parameter}: {help}")]
    Missing {
        /// The parameter.
        parameter: &'static str,
        /// What it means.
        help: &'static str,
        /// What needs it.
        of: String,
    },
    /// A value is given that would be ignored.
    #[error("{parameter} has no effect on {of}; remove it")]
    Ineffective {
        /// The parameter.
        parameter: &'static str,
        /// What ignores it.
        of: String,
    },
}

impl ParameterError {
    /// The parameter.
    pub fn parameter(&self) -> &'static str {
        match self {
            Self::Missing { parameter, .. } | Self::Ineffective { parameter, .. } => parameter,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARE: Param = Param {
        name: "low-share",
        values: Values::Positive,
        help: "Share of the low half",
        unit: "",
        default: "1",
    };

    #[test]
    fn values_out_of_range_and_of_another_type_are_not_contained() {
        let contained = [
            (Values::Positive, Value::Number(0.5)),
            (Values::NotNegative, Value::Number(0.0)),
            (Values::Count, Value::Count(1)),
            (Values::Numbers, Value::Numbers(vec![-1.0])),
            (Values::Switch, Value::Bool(true)),
            (Values::Bool, Value::Bool(false)),
            (Values::Word(&["log", "power"]), Value::Word("power")),
        ];
        for (values, value) in contained {
            assert!(values.contain(&value), "{values:?} {value:?}");
        }
        let others = [
            (Values::Positive, Value::Number(0.0)),
            (Values::Positive, Value::Number(f64::NAN)),
            (Values::Positive, Value::Number(f64::INFINITY)),
            (Values::Positive, Value::Count(1)),
            (Values::NotNegative, Value::Number(-1.0)),
            (Values::Count, Value::Count(0)),
            (Values::Count, Value::Number(1.0)),
            (Values::Numbers, Value::Number(1.0)),
            (Values::Bool, Value::Word("true")),
            (Values::Word(&["log", "power"]), Value::Word("root")),
        ];
        for (values, value) in others {
            assert!(!values.contain(&value), "{values:?} {value:?}");
        }
    }

    #[test]
    fn values_are_kept_by_name() {
        let mut given = Given::default();
        assert!(given.is_empty());
        given.set(&SHARE, Value::Number(0.5));
        assert_eq!(SHARE.key(), "low_share");
        assert_eq!(given.number("low-share"), Some(0.5));
        assert_eq!(given.count("low-share"), None, "another type");
        assert_eq!(given.number("low_share"), None, "another name");
        assert_eq!(given.names().collect::<Vec<_>>(), ["low-share"]);
    }

    #[test]
    fn what_is_given_and_ignored_is_refused_by_name() {
        let given = Given::from_iter([("low-share", Value::Number(0.5))]);
        assert_eq!(given.only("halves", &[SHARE]), Ok(()));
        let error = given.only("thirds", &[]).unwrap_err();
        assert_eq!(error.parameter(), "low-share");
        let want = "low-share has no effect on thirds; remove it";
        assert_eq!(error.to_string(), want);
    }
}
