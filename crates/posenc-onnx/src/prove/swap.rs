//! The proof of a swap: the difference between a site's scores with and without the inserted
//! encoding equals the formula in f64.
//!
//! Both graphs are cut from the same queries and keys to the scores, and fed the same random
//! numbers. Tables that start as zeros are replaced by random ones for the proof, so that it shows
//! where they are connected.

mod pairs;
mod proof;
mod rows;
mod scores;
mod site;
mod symmetry;
#[cfg(test)]
mod tests;
mod values;

use posenc_runtime::Backend;

use crate::prove::VerifyError;
use crate::prove::bare::{self, Bare};
use crate::prove::trial::trial_run;
use crate::report::SiteCheck;

use crate::prove::compute::{BUDGET, Compute, Evaluator, Runtime};
pub(crate) use proof::Proof;
use scores::CachedFormula;
use site::SwappedSite;

impl Proof {
    /// Compares the scores, the weighted values and the embeddings that a runtime computes with the
    /// formula, site by site. [`check_rope`](crate::prove::check_rope) checks rotations.
    ///
    /// # Errors
    /// When a site cannot be cut out, or the runtime does not run it.
    pub(crate) fn check(&self, backend: &dyn Backend) -> Result<Vec<SiteCheck>, VerifyError> {
        self.check_all(&Runtime(backend))
    }

    /// Compares as [`check`](Self::check) does, in the evaluator instead of a runtime.
    pub(crate) fn evaluate(&self) -> Result<Vec<SiteCheck>, VerifyError> {
        self.check_all(&Evaluator)
    }

    /// Compares tokens of equal content in the graph without the encodings that were removed.
    ///
    /// # Errors
    /// As [`bare::check`].
    pub(crate) fn check_bare(&self, backend: &dyn Backend) -> Result<Bare, VerifyError> {
        let mut all = Bare::default();
        for proof in std::iter::once(self).chain(&self.other_branches) {
            let bare = (&proof.bare.0, &proof.bare.1);
            let own = bare::check(bare, &proof.plan.sites, backend)?;
            all.checks.extend(own.checks);
            all.stood_in = all.stood_in.max(own.stood_in);
            all.left_out = all.left_out.or(own.left_out);
        }
        Ok(all)
    }

    fn check_all(&self, by: &dyn Compute) -> Result<Vec<SiteCheck>, VerifyError> {
        let mut checks = self.check_branch(by)?;
        for other in &self.other_branches {
            checks.extend(other.check_all(by)?);
        }
        Ok(checks)
    }

    fn check_branch(&self, by: &dyn Compute) -> Result<Vec<SiteCheck>, VerifyError> {
        let mut checks = vec![];
        for (n, at) in self.lengths().into_iter().enumerate() {
            let bare = trial_run(&self.bare.0, &self.bare.1, at, &BUDGET);
            let swapped = trial_run(&self.swapped.0, &self.swapped.1, at, &BUDGET);
            for group in &self.plan.groups {
                let mut formula = CachedFormula::default();
                // The longer run is for large distances, for which one site is enough.
                let sites = if n == 0 {
                    &group.sites[..]
                } else {
                    &group.sites[..1]
                };
                for site in sites {
                    let site = SwappedSite {
                        by,
                        proof: self,
                        bare: &bare,
                        swapped: &swapped,
                        group,
                        site: *site,
                    };
                    checks.extend(scores::check(&site, &mut formula)?);
                    checks.extend(values::check(&site)?);
                }
                checks.extend(rows::check(by, self, &swapped, at.past, group)?);
            }
        }
        Ok(checks)
    }
}
