//! External payloads: whether their files exist and are long enough. No payload is read.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::error::Result;
use crate::external::location::range_in;
use crate::model::Model;
use crate::stored::{External, Stored};

/// Payloads of fewer bytes are axes, shapes, frequencies and the like, which detection needs. A file
/// of such payloads only must exist; a file with larger ones may have been omitted for its size.
const SMALL: u64 = 1 << 10;

/// The files that were looked up, by location.
#[derive(Debug, Default)]
pub(super) struct Files {
    found: BTreeMap<String, State>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The file has this many bytes.
    Present(usize),
    /// Absent; the size of its largest payload so far.
    Absent(u64),
    /// Absent, with small payloads only.
    Needed,
}

impl Files {
    /// Whether the payload can be loaded: its file is in the model's folder and long enough. Absent
    /// files are accepted, unless [`Self::find_needed`] marked them. Nothing is looked up for models
    /// without a path.
    pub(super) fn check(
        &mut self,
        model: &Model,
        stored: &Stored,
        external: &External,
    ) -> Result<()> {
        external.relative()?;
        let length = external.expected_length(stored)?;
        if model.path().is_none() {
            return Ok(());
        }
        let found = match self.found.entry(external.location.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(look_up(model, external)?),
        };
        match found {
            State::Present(have) => {
                let bytes = || model.graph().external_dir.bytes(external).ok();
                range_in(external, length, *have, bytes).map(drop)
            }
            State::Absent(largest) => {
                *largest = length.max(*largest);
                Ok(())
            }
            State::Needed => Err(external.refused("does not exist")),
        }
    }

    /// Marks absent files of small payloads only as needed, after all payloads were checked; returns
    /// whether there are any. A second check then fails at the first of their payloads.
    pub(super) fn find_needed(&mut self) -> bool {
        let mut any = false;
        for found in self.found.values_mut() {
            if matches!(found, State::Absent(largest) if *largest < SMALL) {
                *found = State::Needed;
                any = true;
            }
        }
        any
    }
}

fn look_up(model: &Model, external: &External) -> Result<State> {
    let length = model.graph().external_dir.length(external);
    let found = length.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    match found {
        Err(e) if e.is_absent() => Ok(State::Absent(0)),
        found => found.map(State::Present),
    }
}

#[cfg(test)]
mod tests;
