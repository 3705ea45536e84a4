//! The scaling dict of a config, as one law reads it.

use serde_json::Value;

use super::dict::Dict;
use super::error::HfConfigError;
use crate::inferred::Inferred;

/// The key of the length that a model was trained on.
pub(super) const ORIGINAL: &str = "original_max_position_embeddings";

/// The key of the length that a model is made for.
pub(super) const MAXIMUM: &str = "max_position_embeddings";

/// A `rope_type` that means a law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HfType {
    /// The word.
    pub word: &'static str,
    /// Keys that have to be there too, with a value that is not 0; the type with more of them
    /// wins.
    pub with: &'static [&'static str],
}

impl HfType {
    /// A word that means the law whatever else is there.
    pub const fn word(word: &'static str) -> Self {
        Self { word, with: &[] }
    }

    /// Whether a dict of this type means the law.
    pub fn is_met(&self, word: &str, section: &Dict<'_>) -> bool {
        self.word == word && self.with.iter().all(|key| section.is_set(key))
    }
}

/// Reads the parameters of a law, and keeps each with the key that it came from.
#[derive(Debug)]
pub struct Reader<'a> {
    /// The whole config.
    pub config: Dict<'a>,
    /// The scaling dict.
    pub section: Dict<'a>,
    /// The word of the law.
    pub law: &'static str,
    /// Where to list what was read.
    pub inferred: &'a mut Vec<Inferred>,
}

impl<'a> Reader<'a> {
    /// Lists a value that was read.
    pub fn note(&mut self, name: &str, value: impl Into<Value>, source: impl Into<String>) {
        self.inferred.push(Inferred::new(name, value, source));
    }

    /// The value, or an error that says which key the law needs.
    ///
    /// # Errors
    /// [`HfConfigError::Missing`].
    pub fn needed<T>(
        &self,
        dict: &Dict<'_>,
        key: &str,
        value: Option<T>,
    ) -> Result<T, HfConfigError> {
        dict.needed(key, value, &format!("{} scaling", self.law))
    }

    /// A number of the scaling dict.
    ///
    /// # Errors
    /// A value that is no number.
    pub fn number(&mut self, key: &str) -> Result<Option<f64>, HfConfigError> {
        let value = self.section.f64(key)?;
        if let Some(value) = value {
            self.note(&key.replace('_', "-"), value, self.section.path(key));
        }
        Ok(value)
    }

    /// A number that has to be there.
    ///
    /// # Errors
    /// A value that is missing or no number.
    pub fn needed_number(&mut self, key: &str) -> Result<f64, HfConfigError> {
        let value = self.number(key)?;
        self.needed(&self.section, key, value)
    }

    /// `factor`, which has to be there.
    ///
    /// # Errors
    /// A value that is missing or no number.
    pub fn factor(&mut self) -> Result<f64, HfConfigError> {
        self.needed_number("factor")
    }

    /// Numbers of the scaling dict that have to be there.
    ///
    /// # Errors
    /// A value that is missing or no list of numbers.
    pub fn needed_numbers(&mut self, key: &str) -> Result<Vec<f64>, HfConfigError> {
        let list = self.needed(&self.section, key, self.section.numbers(key)?)?;
        let path = self.section.path(key);
        self.note(&key.replace('_', "-"), list.clone(), path);
        Ok(list)
    }

    fn length(&mut self, dict: &Dict<'_>, key: &str) -> Result<Option<usize>, HfConfigError> {
        let value = dict.usize(key)?;
        if let Some(value) = value {
            self.note("original-length", value, dict.path(key));
        }
        Ok(value)
    }

    /// The original length within the scaling dict.
    ///
    /// # Errors
    /// A value that is no whole number.
    pub fn original_length(&mut self) -> Result<Option<usize>, HfConfigError> {
        let section = self.section;
        self.length(&section, ORIGINAL)
    }

    /// The original length within the scaling dict or outside of it, which has to be there.
    ///
    /// # Errors
    /// A value that is missing or no whole number, and two lengths that differ.
    pub fn needed_original_length(&mut self) -> Result<usize, HfConfigError> {
        let length = self.either_original_length()?;
        self.needed(&self.section, ORIGINAL, length)
    }

    /// The original length within the scaling dict, where transformers 4 looks for it, or outside of it, where
    /// version 5 looks first.
    fn either_original_length(&mut self) -> Result<Option<usize>, HfConfigError> {
        let (section, config) = (self.section, self.config);
        let read = |dict: &Dict<'_>| -> Result<Option<usize>, HfConfigError> {
            Ok(dict.usize(ORIGINAL)?.filter(|&length| length > 0))
        };
        match (read(&section)?, read(&config)?) {
            (Some(inner), Some(outer)) if inner != outer => Err(HfConfigError::Conflict {
                first: section.path(ORIGINAL),
                second: config.path(ORIGINAL),
            }),
            (Some(_), _) => self.original_length(),
            (None, Some(_)) => self.outer_original_length(),
            (None, None) => Ok(None),
        }
    }

    /// The original length that the config has outside of the scaling dict.
    ///
    /// # Errors
    /// A value that is no whole number.
    pub fn outer_original_length(&mut self) -> Result<Option<usize>, HfConfigError> {
        let config = self.config;
        self.length(&config, ORIGINAL)
    }

    /// The model's own length, taken as the original one.
    ///
    /// # Errors
    /// A value that is missing or no whole number.
    pub fn max_as_original_length(&mut self) -> Result<usize, HfConfigError> {
        let config = self.config;
        let length = self.length(&config, MAXIMUM)?;
        self.needed(&config, MAXIMUM, length)
    }

    /// The original length within the scaling dict or outside of it, else the model's own.
    ///
    /// # Errors
    /// A value that is missing or no whole number, and two lengths that differ.
    pub fn original_or_max_length(&mut self) -> Result<usize, HfConfigError> {
        if let Some(length) = self.either_original_length()? {
            return Ok(length);
        }
        let (section, config) = (self.section, self.config);
        let length = self.length(&config, MAXIMUM)?;
        self.needed(&section, ORIGINAL, length)
    }

    /// The model's own length.
    ///
    /// # Errors
    /// A value that is no whole number.
    pub fn max_length(&self) -> Result<Option<usize>, HfConfigError> {
        self.config.usize(MAXIMUM)
    }
}
