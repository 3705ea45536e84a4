//! The report of a verification as a web page.

use posenc_onnx::Model;
use posenc_onnx::report::{Line, Run, Verify};

use super::summary;
use super::text::{self, RUNS_LEGEND, sites_legend, unchecked, verdict};
use crate::inspect;
use crate::page::{self, Chart, Mark, Page, Scale};
use crate::terminal::Palette;

/// The page of a model, or of two that were compared, each with its name.
pub(super) fn html(report: &Verify, models: &[(&str, &Model)]) -> String {
    let names: Vec<&str> = models.iter().map(|(name, _)| *name).collect();
    let mut page = Page::new(&names.join(" and "));
    let class = if report.ok { "ok" } else { "fail" };
    page.paragraph(class, &verdict(report, Palette::Plain));
    for warning in &report.warnings {
        page.paragraph("", warning);
    }
    let unchecked = unchecked(report);
    if !unchecked.is_empty() {
        page.paragraph("soft", unchecked.trim_end());
    }
    inspect::found(&mut page, models);
    page.heading("Checks");
    page.table(&summary::sites(&report.sites));
    page.paragraph("soft", &summary::sites_legend(&report.sites));
    page.figures(shares(report).into_iter().collect());
    page.details("Every check", |page| {
        page.table(&text::sites(&report.sites));
        page.paragraph("soft", &sites_legend(&report.sites));
    });
    page.heading("Runs");
    page.table(&summary::runs(&report.runs));
    page.paragraph("soft", &summary::runs_legend(&report.runs));
    page.figures(errors(report).into_iter().collect());
    page.details("Every run", |page| {
        page.table(&text::runs(&report.runs));
        page.paragraph("soft", RUNS_LEGEND);
    });
    for (place, nodes) in text::divergences(report) {
        page.heading(&format!("First divergence: {place}"));
        page.table(&nodes);
    }
    page.finish()
}

/// How much of their bounds quantities use, over the attention sites in their order.
fn shares(report: &Verify) -> Option<String> {
    let mut sites: Vec<&str> = vec![];
    let mut lines: Vec<Line> = vec![];
    for check in &report.sites {
        let Some(error) = check.max_error.filter(|_| check.bound > 0.0) else {
            continue;
        };
        let at = sites.iter().position(|site| *site == check.site);
        let at = at.unwrap_or_else(|| {
            sites.push(&check.site);
            sites.len() - 1
        });
        let point = [at as f64, summary::share(error, check.bound)];
        add(&mut lines, &check.quantity, point);
    }
    let bound = Mark {
        name: "bound".to_owned(),
        y: 1.0,
    };
    let chart = Chart {
        lines: &lines,
        axes: ["attention site", "error / bound"],
        scale: Scale::Log,
        marks: &[bound],
    };
    page::lines("Errors as shares of their bounds, by site", &chart)
}

/// The largest difference of any output over the length, for each way to run.
fn errors(report: &Verify) -> Option<String> {
    let mut lines: Vec<Line> = vec![];
    let mut worst: Vec<(String, usize, f64)> = vec![];
    for run in &report.runs {
        let Some(error) = run.max_abs else { continue };
        let name = way(run);
        let same = |(other, length, _): &&mut (String, usize, f64)| {
            *other == name && *length == run.length
        };
        match worst.iter_mut().find(same) {
            Some((.., most)) => *most = most.max(error),
            None => worst.push((name, run.length, error)),
        }
    }
    for (name, length, error) in worst {
        add(&mut lines, &name, [length as f64, error]);
    }
    for line in &mut lines {
        line.points.sort_by(|a, b| a[0].total_cmp(&b[0]));
    }
    let chart = Chart {
        lines: &lines,
        axes: ["tokens", "largest difference"],
        scale: Scale::Log,
        marks: &[],
    };
    page::lines("Largest difference of an output, by length", &chart)
}

/// How a run was made.
fn way(run: &Run) -> String {
    format!(
        "{} {}, optimization {}{}",
        run.runtime,
        run.provider,
        run.optimization,
        if run.is_comparison() {
            ""
        } else {
            ", not judged"
        }
    )
}

fn add(lines: &mut Vec<Line>, name: &str, point: [f64; 2]) {
    match lines.iter_mut().find(|line| line.name == name) {
        Some(line) => line.points.push(point),
        None => lines.push(Line {
            name: name.to_owned(),
            points: vec![point],
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::text::tests::report;
    use super::*;

    const MODEL: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fixtures/mini/rope/model.onnx"
    );

    #[test]
    fn a_page_shows_what_was_found_and_what_was_compared() {
        let model = Model::open(MODEL).unwrap();
        let page = html(&report(false), &[("a.onnx", &model), ("b.onnx", &model)]);
        for part in [
            "1 of 2 comparisons out of bounds",
            "logits &lt;a&amp;b&gt;",
            "rope: wavelengths of both, layers 0-1",
            "<td class=\"n\">–</td>",
            "<summary>Every run</summary>",
            "First divergence: layers.1/Add_3",
            "b = Add(a, c)",
            "var(--s0)",
        ] {
            assert!(page.contains(part), "{part}");
        }
        for outside in ["<script", "http", "href=", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
