//! What was found, as a web page.

use posenc_onnx::Model;
use posenc_onnx::report::{Encoding, Inspect};

use super::text;
use crate::columns::{Align, Columns};
use crate::number::grouped;
use crate::page::{self, Made, Mark, Page};

/// The page of an inspection.
pub(super) fn html(report: &Inspect, model: &Model, made: &Made) -> String {
    let mut page = Page::new(&report.model.path);
    page.paragraph("soft", &made.words());
    inspected(&mut page, report, model);
    page.finish()
}

/// Adds a chapter about one of several models.
pub(crate) fn chapter(page: &mut Page, number: usize, report: &Inspect, model: &Model) {
    page.chapter(number, &report.model.path, |page| {
        inspected(page, report, model)
    });
}

/// Adds everything that was found in a model.
fn inspected(page: &mut Page, report: &Inspect, model: &Model) {
    // The title is its name.
    models(page, [("", report)]);
    for warning in &report.warnings {
        page.paragraph("warning", warning);
    }
    page.heading("Encodings");
    encodings(page, report);
    notes(page, [report]);
    page.figures(page::figures(&model.figures(), &marks([report])));
    page.heading("Limits");
    limits(page, report);
    page.heading("Attention");
    page.table(&text::attention(&report.attention));
    match &report.attention[..] {
        [] => page.paragraph("", "none found"),
        sites => page.details("Every site", |page| page.table(&text::sites(sites))),
    }
    if let Some(refused) = report.refused.as_ref().filter(|all| !all.is_empty()) {
        page.heading("Rejected candidates");
        page.table(&text::refused(refused));
    }
}

/// A model, and what was found in it.
#[derive(Debug)]
pub(crate) struct Shown<'a> {
    pub(crate) name: &'a str,
    pub(crate) model: &'a Model,
    pub(crate) report: Inspect,
}

impl<'a> Shown<'a> {
    /// Inspects a model.
    pub(crate) fn of(name: &'a str, model: &'a Model) -> Self {
        let report = model.inspect();
        Self {
            name,
            model,
            report,
        }
    }
}

/// Adds what one model, or each of two, encodes positions with.
pub(crate) fn found(page: &mut Page, models: &[Shown<'_>]) {
    let reports = || models.iter().map(|shown| &shown.report);
    page.heading("Models");
    self::models(page, models.iter().map(|shown| (shown.name, &shown.report)));
    page.part("Encodings", |page| {
        each(page, models, encodings);
        notes(page, reports());
        let marks = marks(reports());
        let figures: Vec<_> = models.iter().map(|shown| shown.model.figures()).collect();
        page.figures(match (models, &figures[..]) {
            ([a, b], [first, second]) => page::pairs([(a.name, first), (b.name, second)], &marks),
            (_, all) => all
                .iter()
                .flat_map(|figures| page::figures(figures, &marks))
                .collect(),
        });
    });
    page.part("Limits", |page| {
        match reports().all(|r| r.limits.is_empty()) {
            true => page.paragraph("", "none found"),
            false => each(page, models, limits),
        }
    });
}

/// Adds what files are, each with its name, or with none.
fn models<'a>(page: &mut Page, all: impl IntoIterator<Item = (&'a str, &'a Inspect)> + Clone) {
    page.table(&rows(all.clone()));
    let hashes = all.into_iter().flat_map(|(name, report)| {
        let hashes = text::hashes(&report.model);
        hashes.map(move |hash| format!("{hash} {name}"))
    });
    page.paragraph("soft", &hashes.collect::<Vec<_>>().join("\n"));
}

/// A row for each model, with its name.
fn rows<'a>(all: impl IntoIterator<Item = (&'a str, &'a Inspect)>) -> Columns {
    let mut columns = Columns::new(&[
        ("model", Align::Left),
        ("nodes", Align::Right),
        ("parameters", Align::Right),
        ("attention sites", Align::Right),
        ("operators", Align::Left),
        ("IR", Align::Right),
        ("producer", Align::Left),
        ("data", Align::Left),
    ]);
    for (name, report) in all {
        let model = &report.model;
        columns.row([
            name.to_owned(),
            grouped(model.nodes as u64),
            grouped(model.parameters),
            report.attention.len().to_string(),
            text::opsets(model).join(", "),
            model.ir_version.to_string(),
            model.producer.clone(),
            if model.external_data { "external" } else { "" }.to_owned(),
        ]);
    }
    columns
}

/// Adds what tables of encodings mean, once.
fn notes<'a>(page: &mut Page, reports: impl IntoIterator<Item = &'a Inspect>) {
    let mut all: Vec<String> = vec![];
    for note in reports.into_iter().flat_map(text::notes) {
        if !all.contains(&note) {
            all.push(note);
        }
    }
    page.paragraph("soft", &all.join("\n"));
}

/// Adds something of each model, under its name where there are two.
fn each(page: &mut Page, models: &[Shown<'_>], add: fn(&mut Page, &Inspect)) {
    for shown in models {
        if models.len() > 1 {
            page.heading(shown.name);
        }
        add(page, &shown.report);
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
        all.extend(encodings().filter_map(reached).map(page::new_length));
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
