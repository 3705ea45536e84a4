//! What is read at a site, and why nothing was run there.

use posenc_encodings::kind::Kind;

use crate::detect::Found;

/// Why nothing was run.
#[derive(Debug)]
pub(super) enum Miss {
    /// A site differs from the record: its name, and how.
    Differs(String, String),
    /// It cannot be compared, with the reason.
    Unchecked(String),
}

/// The kinds that are read at a site.
pub(super) fn kinds(found: &Found, site: usize) -> Vec<Kind> {
    let rotary = found.rotary.iter().filter(|r| r.site == site);
    let own = found.findings.iter().filter(|f| f.sites.contains(&site));
    let unknown = found.not_rotary.iter().filter(|r| r.site == site);
    rotary
        .map(|_| Kind::Rope)
        .chain(own.map(|f| f.encoding.kind()))
        .chain(unknown.map(|_| Kind::Unknown))
        .collect()
}
