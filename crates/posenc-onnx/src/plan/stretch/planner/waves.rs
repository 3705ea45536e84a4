//! Tables of sines and cosines that are added to the embeddings.

use posenc_encodings::families::sinusoidal::Sinusoidal;
use posenc_encodings::resize::Resizing;
use posenc_ir::ValueId;

use super::Planner;
use crate::error::RewriteError;
use crate::plan::stretch::{Rows, Table, resizing};
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
        let divides = match resizing(self.request)? {
            Some(Resizing::Linear) => true,
            Some(by) if !self.has_learned() => {
                let why = format!("`scale` {by} is of learned tables, and this one is sinusoidal");
                return Err(self.refuse(finding, why));
            }
            _ => false,
        };
        let lead = finding.lead;
        let old = code.max_positions.map(|rows| rows.saturating_sub(lead));
        let Some(old) = old else {
            if !divides {
                return Ok(None);
            }
            let why = "sines and cosines that the graph computes are not supported yet in a rescale; \
                       their length has no end";
            return Err(self.refuse(finding, why.to_owned()));
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

    /// Rows of this width in a constant.
    fn rows(&self, table: ValueId, dim: usize) -> Option<usize> {
        let dims = self.context.dims(table)?;
        let all: usize = dims.iter().product();
        (dim > 0 && all.is_multiple_of(dim)).then(|| all / dim)
    }
}
