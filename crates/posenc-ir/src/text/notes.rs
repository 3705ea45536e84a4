//! Differences between a model and its text.

use std::collections::BTreeMap;
use std::fmt;

/// Something that a text of a model omits or writes differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Omission {
    /// What it is, as a sentence without a full stop.
    pub what: String,
    /// The number of times.
    pub count: usize,
    /// The first place; may be empty.
    pub first: String,
}

impl fmt::Display for Omission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match (self.count, self.first.as_str()) {
            (0 | 1, "") => Ok(()),
            (0 | 1, first) => write!(f, " ({first})"),
            (count, "") => write!(f, " ({count} times)"),
            (count, first) => write!(f, " ({count} times, first {first})"),
        }
    }
}

/// Notes by their sentence.
#[derive(Debug, Default)]
pub(super) struct Notes(BTreeMap<String, (usize, String)>);

impl Notes {
    /// Counts one occurrence; `first` gives the place of the first one.
    pub(super) fn note(&mut self, what: &str, first: impl FnOnce() -> String) {
        match self.0.get_mut(what) {
            Some((count, _)) => *count += 1,
            None => {
                // A comment ends with its line.
                let first = first().replace(['\n', '\r'], " ");
                self.0.insert(what.to_owned(), (1, first));
            }
        }
    }

    pub(super) fn into_list(self) -> Vec<Omission> {
        let one = |(what, (count, first))| Omission { what, count, first };
        self.0.into_iter().map(one).collect()
    }
}
