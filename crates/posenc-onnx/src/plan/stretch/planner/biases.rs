//! Biases by shorter distances.

use super::Planner;
use crate::detect::finding::Encoding;
use crate::error::{Refusal, RewriteError};
use crate::plan::stretch::{Divided, divided};
use crate::record;

impl Planner<'_> {
    /// A bias of distances that are divided.
    pub(super) fn bias(&mut self, at: usize) -> Result<Option<Divided>, RewriteError> {
        let finding = &self.context.found.findings[at];
        if finding.max_length.is_some() {
            let why = "a bias that was computed for one length is not supported yet in a rescale";
            return Err(self.refuse(finding, why.to_owned()));
        }
        let factor = self.factor_of("the bias was")?;
        let stretched = match &finding.encoding {
            Encoding::ScoreBias(_, bias) => bias.stretched(),
            _ => None,
        };
        let recorded = || record::stretch::read(self.context.model).and_then(|r| r.factor);
        let stretched = stretched.or_else(recorded).unwrap_or(1.0);
        if factor == 1.0 || self.is_as_asked(stretched) {
            return Ok(None);
        }
        self.refuse_second_scaling(finding, stretched)?;
        let (Some(bias), Encoding::ScoreBias(_, now)) =
            (divided(finding, factor), &finding.encoding)
        else {
            let most = u16::MAX;
            let why = format!(
                "distances are divided by a whole number up to {most}, and `factor` is {factor}"
            );
            return Err(Refusal::invalid(why).into());
        };
        Ok(Some(Divided {
            finding: at,
            factor,
            of_original: stretched * factor,
            of_distances: *bias != *now.times(1.0 / factor),
            bias,
        }))
    }
}
