//! External payloads: where they point to, without reading them.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::file::within;
use crate::model::Model;
use crate::stored::{External, Stored};

/// Payloads of fewer bytes are what a graph is read by (axes, shapes, frequencies), and exporters
/// keep them inside: where one of them is absent, the model cannot be read.
const NEEDED: u64 = 1 << 10;

/// The lengths of the files that were looked up; `None` for those that are not there.
#[derive(Debug, Default)]
pub(super) struct Files {
    lengths: BTreeMap<String, Option<usize>>,
}

impl Files {
    /// Whether the payload can be loaded: a file that the model may name, of sufficient length.
    /// A large one that is not there is missed by whoever needs its bytes; models without a folder
    /// of their own are not looked up.
    pub(super) fn check(
        &mut self,
        model: &Model,
        stored: &Stored,
        external: &External,
    ) -> Result<()> {
        external.relative()?;
        let length = external.expect(stored)?;
        if model.path().is_none() {
            return Ok(());
        }
        let have = match self.lengths.get(&external.location) {
            Some(length) => *length,
            None => {
                let have = length_of(model, external)?;
                self.lengths.insert(external.location.clone(), have);
                have
            }
        };
        match have {
            Some(have) => within(external, length, have).map(drop),
            None if length < NEEDED => Err(external.refused("is not there")),
            None => Ok(()),
        }
    }
}

fn length_of(model: &Model, external: &External) -> Result<Option<usize>> {
    let found = model.external_file(external).and_then(|path| {
        let meta = std::fs::metadata(&path).map_err(|e| Error::io(&path, e))?;
        Ok(usize::try_from(meta.len()).unwrap_or(usize::MAX))
    });
    match found {
        Err(e) if e.is_absent() => Ok(None),
        found => found.map(Some),
    }
}

#[cfg(test)]
mod tests;
