//! Whether a model already is what a request describes.

use super::planner::Planner;
use super::spec::{EncodingSpec, Group};
use crate::detect::finding::{Encoding, Finding};
use crate::error::{Refusal, RewriteError};
use posenc_encodings::kind::Kind;

impl Planner<'_> {
    /// Whether the chosen sites have the planned encoding, and nothing else.
    pub(crate) fn is_already(&self, kind: Kind, groups: &[Group]) -> bool {
        let found = self.context.found;
        let chosen = |site: &usize| self.sites.contains(site);
        let mut here = self
            .context
            .found
            .findings
            .iter()
            .filter(|f| f.sites.iter().any(chosen));
        let rotary = found.rotary.iter().any(|r| chosen(&r.site));
        let unknown = found.not_rotary.iter().any(|r| chosen(&r.site));
        if rotary || unknown {
            return false;
        }
        if kind == Kind::None {
            return here.next().is_none();
        }
        let planned = |site: usize| {
            groups
                .iter()
                .find(|g| g.sites.contains(&site))
                .map(|g| &g.new)
        };
        let all = self.sites.iter().all(|site| {
            let mut own = self
                .context
                .found
                .findings
                .iter()
                .filter(|f| f.sites.contains(site));
            let one = own.next().filter(|_| own.next().is_none());
            one.zip(planned(*site))
                .is_some_and(|(f, new)| self.is_as_planned(f, new))
        });
        all && here.next().is_some()
    }

    /// Refuses a longer table in place of a learned one where nothing gives its numbers: zeros would
    /// replace the trained rows.
    pub(crate) fn check_trained(&self, kind: Kind) -> Result<(), RewriteError> {
        let p = self.parameters;
        let is_given = self.request.params.is_some() || p.seed.is_some();
        let is_meant = kind == Kind::Learned && !is_given;
        let Some(wanted) = p.max_length.filter(|_| is_meant) else {
            return Ok(());
        };
        let findings = self.context.found.findings.iter();
        let mut here = findings.filter(|f| f.sites.iter().any(|site| self.sites.contains(site)));
        let trained = here.find_map(|finding| match &finding.encoding {
            Encoding::Learned(table) if table.max_positions < wanted => Some(table),
            _ => None,
        });
        let Some(table) = trained else { return Ok(()) };
        let longer = match table.grid {
            None => {
                format!("`scale` linear, cubic, tile or hierarchical with `max-length` {wanted}")
            }
            Some(_) => "`image-size`".to_owned(),
        };
        let why = format!(
            "the model has learned positions already, and zeros would replace their {} rows; instead of \
             `to`, give {longer} for more rows, or keep it and give a table in `params`",
            table.max_positions
        );
        Err(Refusal::invalid(why).into())
    }

    /// Whether nothing is added to some token, as by a table whose first row is zero.
    fn leaves_out_tokens(&self, finding: &Finding) -> bool {
        let (graph, trace) = (self.context.graph(), &self.context.found.trace);
        finding.entries.iter().any(|at| {
            let value = graph.node(at.node).input(at.slot());
            let Some(rows) = value.and_then(|v| trace.get(v).to_f64()) else {
                return false;
            };
            rows.rows()
                .into_iter()
                .any(|row| row.iter().all(|v| *v == 0.0))
        })
    }

    /// Whether a finding is the planned encoding, as far as values were given.
    fn is_as_planned(&self, finding: &Finding, new: &EncodingSpec) -> bool {
        let p = self.parameters;
        let as_found = self.request.params.is_none() && p.seed.is_none();
        let Some(found) = finding.encoding.known() else {
            return false;
        };
        match new {
            EncodingSpec::InputTerm(_) if self.leaves_out_tokens(finding) => false,
            EncodingSpec::InputTerm(spec) => {
                let length = finding.max_length;
                let same = spec.term.is_found_as(found, length, &self.common());
                same && (as_found || spec.tensors.is_empty())
            }
            EncodingSpec::ScoreTerm(spec) => as_found && spec.term.is_found_as(found, &p.family),
            EncodingSpec::ScoreBias(spec) => {
                let Encoding::ScoreBias(kind, found) = &finding.encoding else {
                    return false;
                };
                let params = kind.family().map_or(&[][..], |family| family.params);
                let same = found.word() == spec.bias.word()
                    && found.is_as_planned(&*spec.bias, params, &p.family);
                same && (as_found || spec.tensors.is_empty())
            }
            EncodingSpec::Rotation(_) => false,
        }
    }
}
