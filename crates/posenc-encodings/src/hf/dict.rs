//! Typed reading of JSON objects; `null` counts as absent.

use serde_json::{Map, Value};

use super::error::HfConfigError;

/// An object with the path to it.
#[derive(Debug, Clone, Copy)]
pub struct Dict<'a> {
    map: &'a Map<String, Value>,
    path: &'a str,
}

impl<'a> Dict<'a> {
    /// An object at a path; the path of a whole config is empty.
    pub fn new(map: &'a Map<String, Value>, path: &'a str) -> Self {
        Self { map, path }
    }

    /// The key with the path before it.
    pub fn path(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Whether a key has a value.
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Whether a key has a value that is neither `null` nor 0.
    pub fn is_set(&self, key: &str) -> bool {
        self.get(key)
            .is_some_and(|value| value.as_f64() != Some(0.0))
    }

    /// The keys, those with `null` included.
    pub fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.map.keys().map(String::as_str)
    }

    fn read<T>(
        &self,
        key: &str,
        want: &'static str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, HfConfigError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let wrong = || HfConfigError::WrongType {
            key: self.path(key),
            want,
            got: value.to_string(),
        };
        read(value).map(Some).ok_or_else(wrong)
    }

    /// A number.
    ///
    /// # Errors
    /// A value of another type.
    pub fn f64(&self, key: &str) -> Result<Option<f64>, HfConfigError> {
        self.read(key, "a number", Value::as_f64)
    }

    /// A whole number, which may be written as a float.
    ///
    /// # Errors
    /// A value of another type.
    pub fn usize(&self, key: &str) -> Result<Option<usize>, HfConfigError> {
        self.read(key, "a whole number", |value| {
            let float = || {
                value
                    .as_f64()
                    .filter(|x| x.fract() == 0.0 && (0.0..1e15).contains(x))
            };
            let whole = value.as_u64().or_else(|| float().map(|x| x as u64))?;
            usize::try_from(whole).ok()
        })
    }

    /// True or false.
    ///
    /// # Errors
    /// A value of another type.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, HfConfigError> {
        self.read(key, "true or false", Value::as_bool)
    }

    /// A word.
    ///
    /// # Errors
    /// A value of another type.
    pub fn str(&self, key: &str) -> Result<Option<&'a str>, HfConfigError> {
        self.read(key, "a word", Value::as_str)
    }

    /// A list.
    ///
    /// # Errors
    /// A value of another type.
    pub fn array(&self, key: &str) -> Result<Option<&'a Vec<Value>>, HfConfigError> {
        self.read(key, "a list", Value::as_array)
    }

    /// A list of numbers.
    ///
    /// # Errors
    /// A value of another type.
    pub fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>, HfConfigError> {
        self.read(key, "a list of numbers", |value| {
            value.as_array()?.iter().map(Value::as_f64).collect()
        })
    }

    /// An object.
    ///
    /// # Errors
    /// A value of another type.
    pub fn object(&self, key: &str) -> Result<Option<&'a Map<String, Value>>, HfConfigError> {
        self.read(key, "an object", Value::as_object)
    }

    /// The first of these keys that is there, with its value.
    ///
    /// # Errors
    /// A value of another type.
    pub fn first_f64<'k>(&self, keys: &[&'k str]) -> Result<Option<(&'k str, f64)>, HfConfigError> {
        for key in keys {
            if let Some(value) = self.f64(key)? {
                return Ok(Some((key, value)));
            }
        }
        Ok(None)
    }

    /// The first of these keys that is there, with its value.
    ///
    /// # Errors
    /// A value of another type.
    pub fn first_usize<'k>(
        &self,
        keys: &[&'k str],
    ) -> Result<Option<(&'k str, usize)>, HfConfigError> {
        for key in keys {
            if let Some(value) = self.usize(key)? {
                return Ok(Some((key, value)));
            }
        }
        Ok(None)
    }

    /// The value, or an error that names the key and what needs it.
    ///
    /// # Errors
    /// [`HfConfigError::Missing`].
    pub fn needed<T>(
        &self,
        key: &str,
        value: Option<T>,
        needed_for: &str,
    ) -> Result<T, HfConfigError> {
        let missing = || HfConfigError::Missing {
            key: self.path(key),
            needed_for: needed_for.to_owned(),
        };
        value.ok_or_else(missing)
    }
}
