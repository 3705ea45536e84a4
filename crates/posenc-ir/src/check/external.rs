//! External payloads: where they point to, without reading them.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::model::Model;
use crate::stored::{External, Stored};

/// The lengths of the files that were looked up.
#[derive(Debug, Default)]
pub(super) struct Files {
    lengths: BTreeMap<String, u64>,
}

impl Files {
    /// Whether the payload can be loaded: a file that the model may name, of sufficient length.
    /// Models without a folder of their own are not looked up.
    pub(super) fn check(
        &mut self,
        model: &Model,
        stored: &Stored,
        external: &External,
    ) -> Result<()> {
        let want = stored.elements().and_then(|n| stored.dtype?.payload(n));
        let Some(want) = want.and_then(|n| u64::try_from(n).ok()) else {
            let why = "the tensor's type is not known or its dimensions overflow";
            return Err(Error::invalid(why));
        };
        let length = external.length.unwrap_or(want);
        if length != want {
            let why = format!("its external data has {length} bytes, it needs {want}");
            return Err(Error::invalid(why));
        }
        if model.path().is_none() {
            return Ok(());
        }
        let have = match self.lengths.get(&external.location) {
            Some(length) => *length,
            None => {
                let path = model.external_file(external)?;
                let meta = std::fs::metadata(&path).map_err(|e| Error::io(&path, e))?;
                let known = self.lengths.entry(external.location.clone());
                *known.or_insert(meta.len())
            }
        };
        match external.offset.checked_add(length) {
            Some(end) if end <= have => Ok(()),
            _ => {
                let location = &external.location;
                let why = format!("{location} has {have} bytes, less than the tensor asks for");
                Err(Error::invalid(why))
            }
        }
    }
}
