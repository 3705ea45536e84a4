//! The values that a request gives a law.

use super::facts::Facts;
use super::rope::Rope;
use super::shared::{FACTOR, ORIGINAL_LENGTH};
use crate::inferred::Inferred;
use crate::param::{Given, Param, ParameterError};

/// How far a context is extended: what requests give whatever the law.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Extension {
    /// Context extension s.
    pub factor: Option<f64>,
    /// Length that the model was trained on, in tokens.
    pub original_length: Option<usize>,
    /// Length that tables must hold, in tokens; only a factor that is left out depends on it.
    pub max_length: Option<usize>,
}

/// The values for one law.
#[derive(Debug)]
pub(crate) struct Chosen<'a> {
    pub(crate) facts: &'static Facts,
    pub(crate) given: &'a Given,
    pub(crate) extension: Extension,
    /// What the law is applied to.
    pub(crate) rope: &'a Rope,
    /// The values that were not given.
    pub(crate) inferred: Vec<Inferred>,
}

impl Chosen<'_> {
    /// The factor: given, else the maximum length ÷ the original one, else the law's default.
    pub(crate) fn factor(&mut self) -> f64 {
        let Extension {
            factor,
            original_length,
            max_length,
        } = self.extension;
        if let Some(factor) = factor {
            return factor;
        }
        let (value, source) = match (max_length, original_length) {
            (Some(max), Some(original)) if original > 0 => {
                let source = "the maximum length ÷ the original length";
                (max as f64 / original as f64, source)
            }
            _ => (self.facts.factor.unwrap_or(1.0), "the default"),
        };
        self.inferred
            .push(Inferred::new(FACTOR.name, value, source));
        value
    }

    /// The original length, which the law needs.
    pub(crate) fn original_length(&self) -> Result<usize, ParameterError> {
        self.needed(&ORIGINAL_LENGTH, self.extension.original_length)
    }

    pub(crate) fn number(&self, param: &Param) -> Option<f64> {
        self.given.number(param.name)
    }

    pub(crate) fn numbers(&self, param: &Param) -> Option<Vec<f64>> {
        self.given.numbers(param.name).map(<[f64]>::to_vec)
    }

    /// A value that the law needs.
    pub(crate) fn needed<T>(&self, param: &Param, value: Option<T>) -> Result<T, ParameterError> {
        value.ok_or_else(|| ParameterError::Missing {
            parameter: param.name,
            help: param.help,
            of: self.facts.word.to_owned(),
        })
    }

    /// Whether a switch is given.
    pub(crate) fn is_on(&self, param: &Param) -> bool {
        self.given.bool(param.name) == Some(true)
    }
}
