//! What was found, as a web page.

use posenc_onnx::Model;
use posenc_onnx::report::{Encoding, Inspect};

use super::text;
use crate::page::{self, Mark, Page};

/// The page of an inspection.
pub(super) fn html(report: &Inspect, model: &Model) -> String {
    let mut page = Page::new(&report.model.path);
    for warning in &report.warnings {
        page.paragraph("", warning);
    }
    page.heading("Encodings");
    encodings(&mut page, report);
    page.figures(page::figures(&model.figures(), &marks([report])));
    page.heading("Limits");
    limits(&mut page, report);
    page.heading("Attention");
    page.table(&text::attention(&report.attention));
    page.finish()
}

/// Adds what one model, or each of two, encodes positions with.
pub(crate) fn found(page: &mut Page, models: &[(&str, &Model)]) {
    let reports: Vec<(&str, Inspect)> = models.iter().map(|(n, m)| (*n, m.inspect())).collect();
    let of = |name: &str| match models.len() {
        1 => String::new(),
        _ => format!(" of {name}"),
    };
    let marks = marks(reports.iter().map(|(_, report)| report));
    for (name, report) in &reports {
        page.heading(&format!("Encodings{}", of(name)));
        encodings(page, report);
    }
    page.figures(match models {
        [(a, first), (b, second)] => {
            let [first, second] = [first.figures(), second.figures()];
            page::pairs([(a, &first), (b, &second)], &marks)
        }
        all => {
            let each = all
                .iter()
                .map(|(_, model)| page::figures(&model.figures(), &marks));
            each.flatten().collect()
        }
    });
    for (name, report) in &reports {
        page.heading(&format!("Limits{}", of(name)));
        limits(page, report);
    }
}

fn encodings(page: &mut Page, report: &Inspect) {
    page.table(&text::encodings(&report.encodings));
    if report.encodings.is_empty() {
        page.paragraph("", "none found");
    }
}

fn limits(page: &mut Page, report: &Inspect) {
    page.table(&super::limits::limits(&report.limits));
    if report.limits.is_empty() {
        page.paragraph("", "none found");
    }
}

/// Lengths to mark on wavelengths: those that models were trained on, and those at which they end.
pub(crate) fn marks<'a>(reports: impl IntoIterator<Item = &'a Inspect>) -> Vec<Mark> {
    let original = |encoding: &Encoding| {
        let scaling = encoding.params.get("scaling")?;
        scaling.get("original_length")?.as_f64()
    };
    let reached = |encoding: &Encoding| {
        let factor = encoding.params.get("scaling")?.get("factor")?.as_f64()?;
        Some(factor * original(encoding)?)
    };
    let mark = |name: &str, y: f64| Mark {
        name: format!("{name} {y}"),
        y,
    };
    let mut all = vec![];
    for report in reports {
        let encodings = || report.encodings.iter();
        all.extend(
            encodings()
                .filter_map(original)
                .map(|y| mark("original length", y)),
        );
        all.extend(
            encodings()
                .filter_map(reached)
                .map(|y| mark("new length", y)),
        );
        let limit = report.limits.iter().map(|limit| limit.length).min();
        all.extend(limit.map(|y| mark("limit", y as f64)));
    }
    let mut kept: Vec<Mark> = vec![];
    for mark in all {
        if !kept.contains(&mark) {
            kept.push(mark);
        }
    }
    kept
}
