//! Models under test held to the records of their rewrites.

use posenc_runtime::Backend;

use super::error::VerifyError;
use super::found;
use super::given::Given;
use super::inserted::{self, Inserted};
use super::options::VerifyOptions;
use super::recorded::{self, Held};
use crate::detect::branches::branches;
use crate::record::written::current::places;
use crate::record::{swap, written};
use crate::report::SiteCheck;

/// What is held to records.
#[derive(Default)]
pub(super) struct Records {
    pub(super) checks: Vec<SiteCheck>,
    pub(super) warnings: Vec<String>,
    pub(super) unchecked: Vec<String>,
}

impl Records {
    /// Holds a model to its record, and says whether it has one.
    fn hold(
        &mut self,
        given: &Given<'_>,
        options: &VerifyOptions,
        backends: &[&dyn Backend],
    ) -> Result<bool, VerifyError> {
        let model = given.read();
        self.unchecked.extend(given.unread.clone());
        let invalid = |entry: &str, why| {
            VerifyError::unsupported("verify", format!("invalid {entry} metadata: {why}"))
        };
        let written = written::read(model).transpose();
        let written = written.map_err(|why| invalid("posenc.written", why))?;
        let swap = swap::read(model).transpose();
        let swap = swap.map_err(|why| invalid("posenc.swap", why))?;
        let branches = branches(model, &options.detection());
        let is_recorded = match &written {
            Some(written) => {
                self.add(recorded::hold(model, written, &branches));
                true
            }
            None => {
                let lost = recorded::hold_lost(model);
                let is_lost = !lost.checks.is_empty();
                self.add(lost);
                is_lost
            }
        };
        // Sites that are no longer read, which are named by now, must not move the others.
        let swap = swap.and_then(|swap| match (&written, branches.first()) {
            (Some(written), Some(first)) => {
                let places = places(model.graph(), written, &first.found);
                let now = |site: usize| places.get(site).copied().flatten();
                swap.renumbered(first.options.branch, now)
            }
            _ => Some(swap),
        });
        if let Some(swap) = &swap {
            self.insert(inserted::hold(model, swap, &branches, backends), options)?;
        }
        let found = found::hold(model, swap.as_ref(), &branches, backends);
        self.insert(found, options)?;
        Ok(is_recorded)
    }

    pub(super) fn add(&mut self, held: Held) {
        self.checks.extend(held.checks);
        self.warnings.extend(held.differences);
    }

    /// Adds what was inserted. A runtime that was not named may refuse it.
    fn insert(&mut self, more: Inserted, options: &VerifyOptions) -> Result<(), VerifyError> {
        self.add(more.held);
        self.unchecked.extend(more.unchecked);
        for error in more.refused {
            if !options.providers.is_empty() {
                return Err(error);
            }
            self.warnings.push(format!("skipped: {error}"));
        }
        Ok(())
    }
}

/// Holds the models to their records.
pub(super) fn held(
    given: &Given<'_>,
    other: Option<&Given<'_>>,
    options: &VerifyOptions,
    backends: &[&dyn Backend],
    is_pair: bool,
) -> Result<Records, VerifyError> {
    let mut all = Records::default();
    let mut recorded = 0;
    for given in std::iter::once(given).chain(other) {
        let held = all.hold(given, options, backends);
        recorded += usize::from(held.map_err(|error| error.of_model(given.name))?);
    }
    if recorded == 0 {
        let why =
            "masks, values, weights and outputs, because the model has no record of a rewrite";
        all.unchecked.push(why.to_owned());
    } else if !is_pair {
        let why = match other {
            None => "weights above 1 MiB, because the model that was rewritten was not given",
            Some(_) => "weights above 1 MiB, because neither model was rewritten from the other",
        };
        all.unchecked.push(why.to_owned());
    }
    Ok(all)
}
