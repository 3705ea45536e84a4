//! Position that is concatenated with features, multiplies them, or has rows that content picks.

use super::{Candidate, Key};
use crate::attention::stream::Join;
use crate::detect::finding::{Encoding, Finding};

impl Candidate<'_> {
    /// Position that joins the content by something other than a sum.
    pub(crate) fn not_added(&self) -> Option<(Key, Finding)> {
        let join = self.addition.join;
        if join == Join::Multiplied && self.is_rotation() {
            return None;
        }
        let Some(rows) = &self.rows else {
            return self.unread();
        };
        if join == Join::Multiplied && rows.dim() == 1 {
            return Some(self.unknown("multiplies all features of each position with one number"));
        }
        let does = match join {
            Join::Multiplied => "multiplies the features with",
            Join::Picked => "picks by content from",
            Join::Concatenated | Join::Summed => "concatenates to the features",
        };
        let shape = format!("[{}, {}]", rows.count(), rows.dim());
        Some(self.unknown(&format!("{does} a table of positions {shape}")))
    }

    /// Position that fits no family, of which this says what its node does.
    pub(crate) fn unknown(&self, does: &str) -> (Key, Finding) {
        let place = self.graph().place(self.addition.entry.node);
        let mut found = self.finding(Some(self.value), Encoding::Unknown, None);
        found.1.evidence = vec![format!("{place} {does}")];
        found
    }

    /// Whether this enters a rotation of queries and keys.
    fn is_rotation(&self) -> bool {
        let found = self.found;
        let sites = &self.addition.sites;
        let rotary = found
            .rotary
            .iter()
            .flat_map(|r| [&r.query.region, &r.key.region]);
        let axial = found.axial.iter().flat_map(|a| &a.regions);
        let unknown = found
            .unfitted_rotations
            .iter()
            .flat_map(|(_, regions)| regions);
        let mut regions = rotary.chain(axial).chain(unknown);
        regions.any(|region| region.entries.contains(&self.addition.entry))
            || found.not_rotary.iter().any(|r| sites.contains(&r.site))
    }
}
