//! A model under test, as it was given and as its formulas are read.

use std::collections::BTreeMap;

use posenc_ir::Model;

use crate::graph::ports::Role;
use crate::record::{self, swap, written};
use crate::spelling;

/// A model, and what `inspect` reads of it.
pub(crate) struct Given<'a> {
    /// The model that is run.
    pub(crate) model: &'a Model,
    /// What errors say before a site, where there are two models.
    pub(crate) name: &'static str,
    /// The model without calls of functions and in the spelling that is read, where that is another
    /// one. A rewrite records what it reads from its output as it is, and so is that held to.
    pub(crate) plain: Option<Model>,
    /// What is not read, with the reason.
    pub(crate) unread: Option<String>,
}

impl<'a> Given<'a> {
    pub(crate) fn of(model: &'a Model, roles: &BTreeMap<String, Role>) -> Self {
        let is_recorded = written::read(model).is_some()
            || swap::read(model).is_some()
            || record::record(model).is_some();
        let (plain, error) = if is_recorded {
            (None, None)
        } else {
            spelling::as_read(model, roles)
        };
        let unread = error.map(|why| format!("encodings in functions, because {why}"));
        Self {
            model,
            name: "",
            plain,
            unread,
        }
    }

    /// The model that formulas are read from.
    pub(crate) fn read(&self) -> &Model {
        self.plain.as_ref().unwrap_or(self.model)
    }
}
