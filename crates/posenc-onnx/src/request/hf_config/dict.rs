//! Typed reading of JSON objects; `null` counts as absent.

use serde_json::{Map, Value};

use super::error::HfConfigError;

/// An object with the path to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dict<'a> {
    map: &'a Map<String, Value>,
    path: &'a str,
}

impl<'a> Dict<'a> {
    pub(crate) fn new(map: &'a Map<String, Value>, path: &'a str) -> Self {
        Self { map, path }
    }

    /// The key with the path before it.
    pub(crate) fn path(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &'a str> {
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

    pub(crate) fn f64(&self, key: &str) -> Result<Option<f64>, HfConfigError> {
        self.read(key, "a number", Value::as_f64)
    }

    /// A whole number, which may be written as a float.
    pub(crate) fn usize(&self, key: &str) -> Result<Option<usize>, HfConfigError> {
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

    pub(crate) fn bool(&self, key: &str) -> Result<Option<bool>, HfConfigError> {
        self.read(key, "true or false", Value::as_bool)
    }

    pub(crate) fn str(&self, key: &str) -> Result<Option<&'a str>, HfConfigError> {
        self.read(key, "a word", Value::as_str)
    }

    pub(crate) fn array(&self, key: &str) -> Result<Option<&'a Vec<Value>>, HfConfigError> {
        self.read(key, "a list", Value::as_array)
    }

    pub(crate) fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>, HfConfigError> {
        self.read(key, "a list of numbers", |value| {
            value.as_array()?.iter().map(Value::as_f64).collect()
        })
    }

    pub(crate) fn object(
        &self,
        key: &str,
    ) -> Result<Option<&'a Map<String, Value>>, HfConfigError> {
        self.read(key, "an object", Value::as_object)
    }

    /// The first of these keys that is there.
    pub(crate) fn first_f64<'k>(
        &self,
        keys: &[&'k str],
    ) -> Result<Option<(&'k str, f64)>, HfConfigError> {
        for key in keys {
            if let Some(value) = self.f64(key)? {
                return Ok(Some((key, value)));
            }
        }
        Ok(None)
    }

    /// The first of these keys that is there.
    pub(crate) fn first_usize<'k>(
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

    /// The value, or an error that names the key and who needs it.
    pub(crate) fn needed<T>(
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
