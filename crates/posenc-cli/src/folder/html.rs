//! What was found in a folder, as a web page.

use super::report::Found;
use super::text::{below, limit};
use crate::columns::{Align, Columns};
use crate::inspect::text::encoding;
use crate::page::{Made, Page};

/// The page, with a chapter for each model.
pub(super) fn html(found: &Found<'_>, chapters: Page, made: &Made) -> String {
    let mut page = Page::new(&found.folder);
    page.paragraph("soft", &made.words());
    for problem in &found.errors {
        page.paragraph("fail", &problem.error);
    }
    for disagreement in &found.disagreements {
        page.paragraph("warning", &disagreement.sentence());
    }
    page.heading("Models");
    let mut columns = Columns::new(&[
        ("model", Align::Left),
        ("sites", Align::Right),
        ("limit", Align::Right),
        ("encodings", Align::Left),
    ]);
    for report in &found.models {
        let encodings: Vec<String> = report.encodings.iter().map(encoding).collect();
        columns.row([
            below(&report.model.path, &found.folder),
            report.attention.len().to_string(),
            limit(&report.limits),
            match encodings.is_empty() {
                true => "none".to_owned(),
                false => encodings.join("; "),
            },
        ]);
    }
    page.contents(&columns);
    page.append(chapters);
    page.finish()
}
