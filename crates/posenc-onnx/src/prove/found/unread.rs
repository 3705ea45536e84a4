//! What `inspect` could not read, which is compared with no formula.

use posenc_ir::Model;

use crate::detect::finding::Finding;
use crate::detect::{Found, later, masks};
use crate::plan::unread::{beside, of_branch};
use posenc_encodings::kind::Kind;

/// One sentence for each, with its place.
pub(super) fn names(model: &Model, found: &Found) -> Vec<String> {
    let is_unknown = |finding: &&Finding| finding.encoding.kind() == Kind::Unknown;
    let unknown = found.findings.iter().filter(is_unknown);
    let mut all: Vec<String> = unknown
        .map(|finding| unknown_words(model, finding))
        .collect();
    all.extend(of_branch(model, found));
    all.extend(beside::met(model, found).filter(|_| found.quantized.is_empty()));
    all.extend(later::warning(model, found));
    all.extend(masks::warning(found));
    all
}

/// An encoding of no known family.
fn unknown_words(model: &Model, finding: &Finding) -> String {
    let place = finding.node().map(|node| model.graph().place(node));
    let at = place.map_or_else(String::new, |place| format!(" at {place}"));
    let why = finding.evidence.first().map_or("no family fits", |why| why);
    format!("an unknown encoding{at}, because {why}")
}
