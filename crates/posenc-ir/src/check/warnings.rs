//! Warnings about a valid model.

use std::fmt;

use rustc_hash::FxHashMap;

/// The most warnings that are listed; further ones are counted.
const MOST: usize = 50;

/// Something that is unusual about a model or could not be checked: one sentence, and the first place
/// that it applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    place: Option<String>,
    text: String,
}

impl Warning {
    /// The first place; `None` for the model as a whole.
    pub fn place(&self) -> Option<&str> {
        self.place.as_deref()
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// A cause that many nodes may share.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Cause<'g> {
    /// An unknown domain.
    Domain(&'g str),
    /// An unknown, newer version of a domain.
    Version(&'g str, i64),
    /// An operator that the domain does not have.
    Operator(&'g str, &'g str),
    /// An attribute that the operator does not have.
    Attribute(&'g str, &'g str, &'g str),
    /// A name of a body that is also defined around it.
    Shadow,
}

/// Warnings in the order of their first places, one for each cause.
#[derive(Default)]
pub(super) struct Warnings<'g> {
    list: Vec<(Warning, usize)>,
    known: FxHashMap<Cause<'g>, usize>,
    omitted: usize,
}

impl<'g> Warnings<'g> {
    /// Adds a warning about the model as a whole.
    pub(super) fn model(&mut self, text: String) {
        self.push(None, text);
    }

    /// Adds a warning about one place.
    pub(super) fn at(&mut self, place: impl Into<String>, text: String) {
        self.push(Some(place.into()), text);
    }

    /// Adds a warning that may apply to many places; `first` gives place and text of the first one.
    pub(super) fn of(&mut self, cause: Cause<'g>, first: impl FnOnce() -> (String, String)) {
        match self.known.get(&cause) {
            Some(i) => {
                if let Some((_, count)) = self.list.get_mut(*i) {
                    *count += 1;
                }
            }
            None => {
                self.known.insert(cause, self.list.len());
                let (place, text) = first();
                self.push(Some(place), text);
            }
        }
    }

    fn push(&mut self, place: Option<String>, text: String) {
        if self.list.len() < MOST {
            self.list.push((Warning { place, text }, 1));
        } else {
            self.omitted += 1;
        }
    }

    /// The warnings, with the number of times where that is more than one.
    pub(super) fn finish(self) -> Vec<Warning> {
        let counted = self.list.into_iter().map(|(mut warning, n)| {
            if n > 1 {
                warning.text += &format!(" ({n} times)");
            }
            warning
        });
        let more = (self.omitted > 0).then(|| Warning {
            place: None,
            text: format!("{} more warnings are omitted", self.omitted),
        });
        counted.chain(more).collect()
    }
}
