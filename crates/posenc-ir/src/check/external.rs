//! External payloads: where they point to, without reading them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::error::{Error, Result};
use crate::external::location::byte_range;
use crate::model::Model;
use crate::stored::{External, Stored};

/// Payloads of fewer bytes are what a graph is read by (axes, shapes, frequencies). A file of
/// nothing else was not left behind for its size: without it the model cannot be read.
const NEEDED: u64 = 1 << 10;

/// The files that were looked up, by location.
#[derive(Debug, Default)]
pub(super) struct Files {
    found: BTreeMap<String, Found>,
}

#[derive(Clone, Copy, Debug)]
enum Found {
    /// With so many bytes.
    There(usize),
    /// Not there; its largest payload so far.
    Absent(u64),
    /// Not there, and with small payloads only.
    Needed,
}

impl Files {
    /// Whether the payload can be loaded: a file that the model may name, of sufficient length.
    /// One that is not there is missed by whoever needs its bytes, unless [`Self::lack`] said
    /// otherwise; models without a folder of their own are not looked up.
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
            Found::There(have) => byte_range(external, length, *have).map(drop),
            Found::Absent(largest) => {
                *largest = length.max(*largest);
                Ok(())
            }
            Found::Needed => Err(external.refused("is not there")),
        }
    }

    /// Whether a file is needed and absent, once every payload was looked at. To look at them
    /// again finds the first of its payloads.
    pub(super) fn lack(&mut self) -> bool {
        let mut lack = false;
        for found in self.found.values_mut() {
            if matches!(found, Found::Absent(largest) if *largest < NEEDED) {
                *found = Found::Needed;
                lack = true;
            }
        }
        lack
    }
}

fn look_up(model: &Model, external: &External) -> Result<Found> {
    let found = model.external_file(external).and_then(|path| {
        let meta = std::fs::metadata(&path).map_err(|e| Error::io(&path, e))?;
        Ok(usize::try_from(meta.len()).unwrap_or(usize::MAX))
    });
    match found {
        Err(e) if e.is_absent() => Ok(Found::Absent(0)),
        found => found.map(Found::There),
    }
}

#[cfg(test)]
mod tests;
