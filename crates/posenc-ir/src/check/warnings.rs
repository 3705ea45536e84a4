//! What a user should know of a model that can be worked with.

use std::fmt;

use rustc_hash::FxHashMap;

/// So many warnings are listed; of more, the number is said.
const MOST: usize = 50;

/// Something about a model that is unusual or could not be checked: one sentence, with the first
/// place where it is so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    place: Option<String>,
    text: String,
}

impl Warning {
    /// Where, for the first time; `None` for the model as a whole.
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

/// What many nodes may give cause for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Cause<'g> {
    /// The domain is not known.
    Domain(&'g str),
    /// The version of the domain is newer than what is known.
    Version(&'g str, i64),
    /// The domain has no such operator.
    Operator(&'g str, &'g str),
    /// The operator has no such attribute.
    Attribute(&'g str, &'g str, &'g str),
    /// A body defines what is defined around it.
    Shadow,
}

/// Warnings in the order of their first places; what is the same at many places is one.
#[derive(Default)]
pub(super) struct Warnings<'g> {
    list: Vec<(Warning, usize)>,
    known: FxHashMap<Cause<'g>, usize>,
    left_out: usize,
}

impl<'g> Warnings<'g> {
    /// Warns of the model as a whole.
    pub(super) fn model(&mut self, text: String) {
        self.push(None, text);
    }

    /// Warns of one place.
    pub(super) fn at(&mut self, place: impl Into<String>, text: String) {
        self.push(Some(place.into()), text);
    }

    /// Warns of what may be so at many places; only for the first one, place and text are asked
    /// for.
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
        match self.list.len() < MOST {
            true => self.list.push((Warning { place, text }, 1)),
            false => self.left_out += 1,
        }
    }

    /// The warnings, each with how often where that is more than once.
    pub(super) fn finish(self) -> Vec<Warning> {
        let counted = self.list.into_iter().map(|(mut warning, n)| {
            if n > 1 {
                warning.text += &format!(" ({n} times)");
            }
            warning
        });
        let more = (self.left_out > 0).then(|| Warning {
            place: None,
            text: format!("{} warnings more are left out", self.left_out),
        });
        counted.chain(more).collect()
    }
}
