//! What is read at a site, and why nothing was run there.

use posenc_encodings::kind::Kind;

use crate::detect::Found;

/// Why nothing was run.
#[derive(Debug)]
pub(in crate::prove) enum Miss {
    /// A site differs from the record: its name, and how.
    Differs(String, String),
    /// It cannot be compared, with the reason.
    Unchecked(String),
}

/// The kinds of the encodings that are found at a site.
pub(crate) fn found_kinds(found: &Found, site: usize) -> Vec<Kind> {
    let rotary = found.rotary.iter().filter(|r| r.site == site);
    let own = found.findings.iter().filter(|f| f.sites.contains(&site));
    let rotary = rotary.map(|_| Kind::Rope);
    rotary.chain(own.map(|f| f.encoding.kind())).collect()
}

/// The kinds of the encodings at a site, and `unknown` for what acts on queries or keys by no known formula.
pub(super) fn kinds(found: &Found, site: usize) -> Vec<Kind> {
    let unknown = found.not_rotary.iter().filter(|r| r.site == site);
    let mut all = found_kinds(found, site);
    all.extend(unknown.map(|_| Kind::Unknown));
    all
}

/// How the kinds that are read at a site differ from what was inserted and what read then, in words;
/// empty where they do not.
pub(super) fn difference(to: Kind, read: Option<Kind>, kinds: &[Kind], is_missing: bool) -> String {
    let expected = [Some(to), read];
    let is_other = |k: &&Kind| !expected.contains(&Some(**k)) && !k.is_absolute();
    match kinds.iter().find(is_other) {
        _ if is_missing => format!("{to} was inserted and does not read"),
        Some(other) => format!("{to} was asked for, and {other} is read"),
        None => String::new(),
    }
}
