//! Whether a model already is what was asked.

use super::planner::Planner;
use super::{EncodingSpec, Group};
use crate::detect::finding::{Encoding, Finding};
use posenc_encodings::families::relative_bias::RelativeBias;
use posenc_encodings::families::sinusoidal::{Denominator, Sinusoidal};
use posenc_encodings::kind::Kind;

impl Planner<'_> {
    /// Whether the chosen sites show what is asked for, and nothing else.
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
        let unknown = found.unknown.iter().any(|r| chosen(&r.site));
        if rotary || unknown {
            return false;
        }
        if kind == Kind::None {
            return here.next().is_none();
        }
        let asked_of = |site: usize| {
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
            one.zip(asked_of(*site))
                .is_some_and(|(f, new)| self.shows(f, new))
        });
        all && here.next().is_some()
    }

    /// Whether a finding is what is asked for, as far as anything was asked of its numbers.
    fn shows(&self, finding: &Finding, new: &EncodingSpec) -> bool {
        let p = self.parameters;
        let as_found = self.request.params.is_none() && p.seed.is_none();
        match (&finding.encoding, new) {
            (Encoding::Sinusoidal(found), EncodingSpec::Sinusoidal { layout, base, rows }) => {
                let plain = Sinusoidal {
                    layout: *layout,
                    base: found.base,
                    denominator: Denominator::Pairs,
                    image: None,
                    offset: 0,
                    cosines_first: false,
                    factor: 1.0,
                    amplitude: 1.0,
                    ..found.clone()
                };
                let near = (found.base - base).abs() <= 1e-3 * base;
                near && plain == *found && (rows.is_none() || *rows <= finding.max_length)
            }
            (Encoding::Alibi(found), EncodingSpec::Alibi(asked)) => {
                let pairs = found.slopes.iter().zip(&asked.slopes);
                let near = pairs
                    .into_iter()
                    .all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs());
                near && found.heads == asked.heads && found.symmetric == asked.symmetric
            }
            (Encoding::T5Bias(found), EncodingSpec::T5Bias { .. }) => {
                as_found
                    && p.num_buckets.is_none_or(|n| n == found.num_buckets)
                    && p.max_distance.is_none_or(|n| Some(n) == found.max_distance)
                    && p.bidirectional.is_none_or(|b| b == found.bidirectional)
            }
            (Encoding::Learned(found), EncodingSpec::Learned { .. }) => {
                as_found && p.max_length.is_none_or(|n| n <= found.max_positions)
            }
            (
                Encoding::RelativeBias(RelativeBias { max_distance, .. }),
                EncodingSpec::RelativeBias { .. },
            ) => as_found && p.max_distance.is_none_or(|n| Some(n) == *max_distance),
            (Encoding::Shaw(found), EncodingSpec::Shaw { .. }) => {
                as_found && p.max_distance.is_none_or(|n| Some(n) == found.max_distance)
            }
            (Encoding::TransformerXl(_), EncodingSpec::TransformerXl { .. })
            | (Encoding::Conv(_), EncodingSpec::Conv { .. }) => as_found,
            _ => false,
        }
    }
}
