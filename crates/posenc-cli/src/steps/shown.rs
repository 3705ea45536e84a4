//! Reports as tables, sentences and drawings, for front ends that show them in their own way.
//!
//! A table is an object with `headings` and `rows`; a cell has a `text`, and `ok` where it is a verdict.

use posenc_onnx::Model;
use posenc_onnx::report::{Inspect, Rewrite, SiteCheck};
use serde_json::{Value, json};

use crate::columns::{Align, Cell, Columns, or_dash};
use crate::inspect::{attention, encodings, facts, limits, marks, notes, refused};
use crate::number::rough;
use crate::page;
use crate::rewrite::diff::diff;
use crate::rewrite::text;
use crate::terminal::Palette;

/// What was found, with drawings as fragments of HTML; the colors of lines are the variables `--s0` to
/// `--s7`, `--ink` and `--grid`.
pub fn inspected(report: &Inspect, model: &Model) -> Value {
    json!({
        "facts": facts(&report.model),
        "fingerprint": report.model.fingerprint,
        "encodings": encodings(&report.encodings).json(),
        "notes": notes(report),
        "attention": attention(&report.attention).json(),
        "limits": limits(&report.limits).json(),
        "refused": refused(report.refused.as_deref().unwrap_or_default()).json(),
        "warnings": report.warnings,
        "figures": page::figures(&model.figures(), &marks([report])),
    })
}

/// What was done.
pub fn rewritten(report: &Rewrite) -> Value {
    let limits = |all| limits(all).json();
    json!({
        "inferred": text::inferred(&report.inferred).json(),
        "edits": text::edited(&report.edits).json(),
        "counts": match report.edits.is_empty() {
            true => text::NO_EDITS.to_owned(),
            false => text::counts(&report.edits),
        },
        "limits": [limits(&report.limits.before), limits(&report.limits.after)],
        "guarantee": text::guarantee(report.guarantee),
        "meaning": report.meaning,
        "warnings": report.warnings,
        "check": report.check.as_ref().map(|check| text::check(check, Palette::Plain)),
        "ok": report.check.as_ref().is_none_or(|check| check.ok),
    })
}

/// Comparisons with formulas.
pub fn checks(all: &[SiteCheck]) -> Value {
    let mut columns = Columns::new(&[
        ("site", Align::Left),
        ("quantity", Align::Left),
        ("largest error", Align::Right),
        ("bound", Align::Right),
        ("", Align::Left),
    ]);
    for check in all {
        let cells = [
            check.site.clone(),
            check.quantity.clone(),
            or_dash(check.max_error, rough),
            rough(check.bound),
        ];
        let cells = cells.into_iter().map(Cell::from);
        columns.row(cells.chain([Cell::verdict(check.ok)]));
    }
    columns.json()
}

/// The drawings of an original and of what was made of it, each with its name.
pub fn compared([before, after]: [(&str, &Model); 2]) -> Vec<String> {
    let reports = [before, after].map(|(_, model)| model.inspect());
    let figures = [before, after].map(|(_, model)| model.figures());
    let named = [(before.0, &figures[0][..]), (after.0, &figures[1][..])];
    page::pairs(named, &marks(&reports))
}

/// The unified diff of two texts; empty where they are the same.
pub fn difference(before: &str, after: &str, names: [&str; 2]) -> String {
    diff(before, after, names, Palette::Plain)
}
