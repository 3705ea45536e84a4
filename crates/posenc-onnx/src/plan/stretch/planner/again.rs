//! What an earlier rewrite has scaled, and what is as it is asked for.

use posenc_encodings::resize::Resizing;
use posenc_encodings::words::Word;

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
        finding: &Finding,
        by: Resizing,
    ) -> Result<(), RewriteError> {
        let mixes_again = |before: &Resizing| match before {
            Resizing::Truncate => false,
            Resizing::Tile => by != Resizing::Truncate,
            _ => by.mixes(),
        };
        let before = record::stretch::resized(self.context.model).find(mixes_again);
        self.refuse_rows(finding, before.map(Resizing::name))
    }

    /// Refuses rows of which there are as many as are asked for, and which an earlier rewrite made in another
    /// way, unless that is allowed.
    pub(super) fn check_law(&self, finding: &Finding, by: Resizing) -> Result<(), RewriteError> {
        let before = record::stretch::read(self.context.model);
        let scale = before.as_ref().and_then(|before| before.last()?.resizing());
        let (Some(scale), Some(before)) = (scale, before) else {
            return Ok(());
        };
        let is_interpolated = matches!(by, Resizing::Linear | Resizing::Cubic);
        let is_aligned = before.corners == self.request.parameters.corners;
        let is_same = by == scale && (is_aligned || !is_interpolated);
        // Nothing is left to cut off.
        let is_as_asked = is_same || by == Resizing::Truncate;
        self.refuse_rows(finding, (!is_as_asked).then(|| scale.name()))
    }

    /// Refuses to scale rows to which an earlier rewrite has added others without a scaling, unless that is
    /// allowed.
    pub(super) fn check_rows_did_not_go_on(&self, finding: &Finding) -> Result<(), RewriteError> {
        let before = record::stretch::read(self.context.model);
        let is_longer = before.is_some_and(|before| before.continued);
        self.refuse_rows(finding, is_longer.then_some("it got more rows before"))
    }

    /// Refuses rows that were made in some way, unless that is allowed.
    fn refuse_rows(&self, finding: &Finding, how: Option<&str>) -> Result<(), RewriteError> {
        let Some(how) = how.filter(|_| !self.request.allowances.allow_rescale) else {
            return Ok(());
        };
        let why = format!(
            "the table is scaled already ({how}); scale the original, or give `allow-rescale` to scale the \
             result once more"
        );
        Err(self.already_scaled(finding, why))
    }
}
