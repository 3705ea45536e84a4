//! What an earlier rewrite has scaled, and what is as it is asked for.

use posenc_encodings::resize::Resizing;

use super::Planner;
use crate::detect::finding::Finding;
use crate::error::{Refusal, RefusalKind, RewriteError};
use crate::record;

impl Planner<'_> {
    /// Whether a factor was given by which an encoding is scaled already.
    pub(super) fn is_as_asked(&self, before: f64) -> bool {
        let p = &self.request.parameters;
        before > 1.0 && p.factor == Some(before) && !self.request.allowances.allow_rescale
    }

    /// Refuses to scale an encoding that is scaled by `before`, unless that is allowed.
    pub(super) fn refuse_second_scaling(
        &self,
        finding: &Finding,
        before: f64,
    ) -> Result<(), RewriteError> {
        if before <= 1.0 || self.request.allowances.allow_rescale {
            return Ok(());
        }
        let why = format!(
            "{} is scaled already, by {before}; give `allow-rescale` to scale the result once more",
            finding.encoding.kind()
        );
        Err(self.already_scaled(finding, why))
    }

    pub(super) fn already_scaled(&self, finding: &Finding, why: String) -> RewriteError {
        let refusal = Refusal::new(RefusalKind::AlreadyScaled, why);
        match finding.node() {
            Some(node) => refusal.at(self.context.graph().place(node)).into(),
            None => refusal.into(),
        }
    }

    /// Refuses to make rows of those that an earlier rewrite made, unless that is allowed: rows in between,
    /// and copies of copies, which would begin again in the middle.
    pub(super) fn check_rows_are_original(
        &self,
        at: usize,
        by: Resizing,
    ) -> Result<(), RewriteError> {
        let mixes_again = |before: &Resizing| match before {
            Resizing::Truncate => false,
            Resizing::Tile => by != Resizing::Truncate,
            _ => by.mixes(),
        };
        let before = record::stretch::resized(self.context.model).filter(mixes_again);
        match before.filter(|_| !self.request.allowances.allow_rescale) {
            None => Ok(()),
            Some(scale) => {
                let finding = &self.context.found.findings[at];
                let why = format!(
                    "the table is scaled already ({scale}); scale the original, or give \
                     `allow-rescale` to scale the result once more"
                );
                Err(self.already_scaled(finding, why))
            }
        }
    }
}
