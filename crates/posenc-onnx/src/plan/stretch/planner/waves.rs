//! Sines and cosines that are added to the embeddings, of a table or computed.

use posenc_encodings::families::sinusoidal::Sinusoidal;
use posenc_encodings::resize::Resizing;
use posenc_ir::ValueId;

use super::Planner;
use crate::detect::finding::{Encoding, Finding};
use crate::error::RewriteError;
use crate::plan::stretch::{ComputedWaves, Rows, Table, resizing};
use crate::plan::swap::size;

impl Planner<'_> {
    /// A table of sines and cosines: more rows of the same code, and with a factor those of smaller
    /// steps.
    pub(super) fn waves(
        &mut self,
        at: usize,
        code: &Sinusoidal,
    ) -> Result<Option<Table>, RewriteError> {
        let finding = &self.context.found.findings[at];
        let divides = self.divides(finding)?;
        let lead = finding.lead;
        let Some(old) = code.max_positions.map(|rows| rows.saturating_sub(lead)) else {
            return Ok(None);
        };
        let rows = self.context.found.findings[at]
            .table
            .and_then(|table| self.rows(table, code.dim));
        let Some(reserved) = rows.and_then(|rows| rows.checked_sub(old)) else {
            let why = "its rows cannot be told from the constant that holds them";
            return Err(self.refuse(finding, why.to_owned()));
        };
        let p = &self.request.parameters;
        let is_scaled = divides && self.is_as_asked(code.factor);
        if is_scaled && p.max_length.is_none() {
            return Ok(None);
        }
        let given = p.factor;
        let new = self.length(old)?;
        size::numbers_in(&[reserved + new, code.dim])?;
        let divides = divides && !is_scaled;
        // A shorter table of the same code says nothing else.
        if !divides && new <= old {
            return Ok(None);
        }
        let factor = match divides {
            true => given.unwrap_or(new as f64 / old as f64),
            false => 1.0,
        };
        if divides && given.is_none() {
            self.check_rows_did_not_go_on(finding)?;
        }
        if factor != 1.0 {
            self.refuse_second_scaling(finding, code.factor)?;
        }
        let kept = if factor == 1.0 { old.min(new) } else { 0 };
        let code = Sinusoidal {
            factor: code.factor * factor,
            offset: code.offset + lead,
            max_positions: Some(new),
            ..code.clone()
        };
        self.changed(at, [reserved, old, new], Rows::Waves { code, kept })
    }

    /// Whether the graph computes sines and cosines for sequences of any length.
    pub(super) fn is_computed(&self, finding: &Finding) -> bool {
        match &finding.encoding {
            Encoding::Sinusoidal(code) => code.max_positions.is_none() && code.image.is_none(),
            _ => false,
        }
    }

    /// Computed sines and cosines: a factor divides their positions.
    pub(super) fn computed_waves(
        &mut self,
        at: usize,
    ) -> Result<Option<ComputedWaves>, RewriteError> {
        let finding = &self.context.found.findings[at];
        let Encoding::Sinusoidal(code) = &finding.encoding else {
            return Ok(None);
        };
        if !self.divides(finding)? {
            return Ok(None);
        }
        let factor = self.factor_of("the sines and cosines were")?;
        if factor == 1.0 || self.is_as_asked(code.factor) {
            return Ok(None);
        }
        self.refuse_second_scaling(finding, code.factor)?;
        let code = Sinusoidal {
            factor: code.factor * factor,
            ..code.clone()
        };
        Ok(Some(ComputedWaves {
            finding: at,
            factor,
            code,
        }))
    }

    /// Whether a scaling divides the positions of sines and cosines.
    fn divides(&self, finding: &Finding) -> Result<bool, RewriteError> {
        match resizing(self.context.found, self.request)? {
            Some(Resizing::Linear) => Ok(true),
            Some(by) if !self.has_learned() => {
                let why = format!(
                    "`scale` {by} applies to learned tables only, and this one is sinusoidal"
                );
                Err(self.refuse(finding, why))
            }
            _ => Ok(false),
        }
    }

    /// Rows of this width in a constant.
    fn rows(&self, table: ValueId, dim: usize) -> Option<usize> {
        let dims = self.context.dims(table)?;
        let all: usize = dims.iter().product();
        (dim > 0 && all.is_multiple_of(dim)).then(|| all / dim)
    }
}
