//! Lengths and factors, each from the other where one of them is given.

use posenc_encodings::encoding::MOST_NUMBERS;
use posenc_encodings::inferred::{self, Inferred};
use posenc_encodings::laws::LawName;
use serde_json::json;

use super::Planner;
use crate::detect::limits;
use crate::error::{Refusal, RewriteError};
use crate::request::ScaleType;

/// The factor where neither a factor nor a length is given.
const FACTOR: f64 = 4.0;

impl Planner<'_> {
    /// Refuses a factor by which nothing can be divided.
    pub(super) fn check_factor(&self) -> Result<(), RewriteError> {
        let given = self.request.parameters.factor;
        match given.filter(|factor| !(factor.is_finite() && *factor > 0.0)) {
            None => Ok(()),
            Some(factor) => {
                let why = format!("`factor` cannot be {factor}");
                Err(Refusal::invalid(why).into())
            }
        }
    }

    /// The length at which the model ends; `None` where it ends nowhere.
    fn end(&self) -> Option<usize> {
        let limits = limits::all(self.context.graph(), self.context.found);
        limits.first().map(|limit| limit.length)
    }

    /// The length at which the model ends, times a factor above 1.
    pub(super) fn longer(&mut self, factor: f64) -> Result<Option<usize>, RewriteError> {
        let Some(old) = self.end().filter(|_| factor > 1.0) else {
            return Ok(None);
        };
        let new = times(old, factor)?;
        self.infer(new, format!("{old} positions × {factor}"));
        Ok(Some(new))
    }

    /// The factor of what ends at no length. `what`, in the past tense, was made for the length at which the model ends,
    /// if any.
    pub(super) fn factor_of(&mut self, what: &str) -> Result<f64, RewriteError> {
        let p = &self.request.parameters;
        self.check_factor()?;
        match (p.factor, p.max_length, self.end()) {
            (Some(factor), ..) => Ok(factor),
            (None, Some(new), Some(old)) if old <= new => {
                let factor = new as f64 / old as f64;
                let source = format!("{new} positions ÷ {old}");
                inferred::add(&mut self.inferred, Inferred::new("factor", factor, source));
                Ok(factor)
            }
            (None, Some(_), _) => {
                let why = format!("nothing tells for which length {what} made; give `factor`");
                Err(Refusal::missing("factor", why).into())
            }
            (None, None, _) => Ok(self.usual_factor()),
        }
    }

    /// The factor where nothing is given.
    pub(super) fn usual_factor(&mut self) -> f64 {
        let factor = Inferred::new("factor", FACTOR, "the default");
        inferred::add(&mut self.inferred, factor);
        FACTOR
    }

    /// Positions of a table of `old` ones afterwards.
    pub(super) fn length(&mut self, old: usize) -> Result<usize, RewriteError> {
        let p = &self.request.parameters;
        self.check_factor()?;
        let given = p.factor.map(|factor| times(old, factor)).transpose()?;
        match (p.max_length, p.factor.zip(given)) {
            (Some(length), Some(_)) => {
                let is_linear = self.request.scale == Some(LawName::Linear.into());
                if !is_linear || self.has_learned() {
                    self.check_factor_makes(old, length)?;
                }
                Ok(length)
            }
            (Some(length), None) => Ok(length),
            (None, Some((factor, length))) => {
                self.infer(length, format!("{old} positions × {factor}"));
                Ok(length)
            }
            (None, None) if self.request.scale == Some(ScaleType::Truncate) => {
                let why = "how many positions stay is not known; give `max-length`";
                Err(Refusal::missing("max-length", why).into())
            }
            (None, None) => {
                let factor = self.usual_factor();
                let length = times(old, factor)?;
                self.infer(length, format!("{old} positions × {factor}"));
                Ok(length)
            }
        }
    }

    /// Refuses a factor that makes another length of the old one than the new one.
    pub(super) fn check_factor_makes(&self, old: usize, new: usize) -> Result<(), RewriteError> {
        let Some(factor) = self.request.parameters.factor else {
            return Ok(());
        };
        let made = times(old, factor)?;
        if made == new {
            return Ok(());
        }
        let why = format!(
            "`factor` {factor} makes {old} positions {made}, and `max-length` is {new}; remove one of them"
        );
        Err(Refusal::invalid(why).into())
    }

    fn infer(&mut self, length: usize, source: String) {
        let length = Inferred::new("max-length", json!(length), source);
        inferred::add(&mut self.inferred, length);
    }
}

/// So many times the rows of a table.
///
/// # Errors
/// Where they are more than the numbers that a table may have.
pub(super) fn times(rows: usize, factor: f64) -> Result<usize, RewriteError> {
    // Rows beyond all numbers are the largest of these.
    let more = (rows as f64 * factor).round() as usize;
    if more <= MOST_NUMBERS {
        return Ok(more);
    }
    let why = format!(
        "`factor` {factor} makes more rows of {rows} than the {MOST_NUMBERS} numbers that a table may have"
    );
    Err(Refusal::invalid(why).into())
}
