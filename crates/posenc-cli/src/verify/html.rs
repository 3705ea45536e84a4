//! The report of a verification as a web page.

use std::borrow::Cow;
use std::path::Path;

use posenc_onnx::Model;
use posenc_onnx::report::{Line, Run, Verify};

use super::case::Case;
use super::summary;
use super::text::{self, RUNS_LEGEND, sites_legend, unchecked, verdict};
use crate::columns::{Align, Cell, Columns};
use crate::inspect::{Shown, found};
use crate::page::{self, Chart, Made, Mark, Page, Scale};
use crate::terminal::Palette;

/// Models with the names of their files; with their paths, where two files have one name.
pub(super) fn named<'a>(models: &[(&'a Path, &'a Model)]) -> Vec<(Cow<'a, str>, &'a Model)> {
    let file = |path: &'a Path| path.file_name().unwrap_or(path.as_os_str());
    let is_alone = |path| models.iter().filter(|m| file(m.0) == file(path)).count() == 1;
    let name = |path: &'a Path| match is_alone(path) {
        true => file(path).to_string_lossy(),
        false => path.to_string_lossy(),
    };
    let all = models.iter();
    all.map(|(path, model)| (name(path), *model)).collect()
}

/// The page of a model, or of two that were compared.
pub(super) fn html(
    report: &Verify,
    models: &[(&Path, &Model)],
    runtimes: &[String],
    made: &Made,
) -> String {
    let names: Vec<Cow<'_, str>> = named(models).into_iter().map(|(name, _)| name).collect();
    let mut page = Page::new(&names.join(" and "));
    page.paragraph("soft", &made.words());
    verified(&mut page, report, models, runtimes);
    page.finish()
}

/// Adds everything about the verification of a model, or of two.
fn verified(page: &mut Page, report: &Verify, models: &[(&Path, &Model)], runtimes: &[String]) {
    let class = if report.ok { "ok" } else { "fail" };
    page.paragraph(class, &verdict(report, Palette::Plain));
    for warning in &report.warnings {
        page.paragraph("warning", warning);
    }
    page.paragraph("soft", &unchecked(report));
    page.paragraph("soft", &format!("runtimes: {}", runtimes.join(", ")));
    let named = named(models);
    let shown: Vec<Shown<'_>> = named.iter().map(|(n, m)| Shown::of(n, m)).collect();
    found(page, &shown);
    if !report.sites.is_empty() {
        checks(page, report, &shown);
    }
    if !report.runs.is_empty() {
        runs(page, report);
    }
    for (place, nodes) in text::divergences(report) {
        page.heading(&format!("First divergence: {place}"));
        page.table(&nodes);
    }
}

/// A chapter about one of several models.
pub(super) fn chapter(
    page: &mut Page,
    number: usize,
    case: &Case,
    models: &[(&Path, &Model)],
    runtimes: &[String],
) {
    page.chapter(number, &case.title(), |page| match case.found() {
        Ok(report) => verified(page, report, models, runtimes),
        Err(error) => page.paragraph("fail", error),
    });
}

/// The page of several models, each with a chapter.
pub(super) fn whole(cases: &[Case], verdict: (bool, &str), chapters: Page, made: &Made) -> String {
    let mut page = Page::new("posenc-onnx verify");
    page.paragraph("soft", &made.words());
    let (is_ok, words) = verdict;
    page.paragraph(if is_ok { "ok" } else { "fail" }, words);
    page.heading("Models");
    page.contents(&rows(cases));
    page.append(chapters);
    page.finish()
}

/// A row for each model.
fn rows(cases: &[Case]) -> Columns {
    let mut columns = Columns::new(&[
        ("model", Align::Left),
        ("checks", Align::Right),
        ("runs", Align::Right),
        ("result", Align::Left),
        ("", Align::Left),
    ]);
    for case in cases {
        let (counts, result, is_ok) = match case.found() {
            Ok(report) => {
                let counts = [report.sites.len(), report.runs.len()];
                let counts = counts.map(|count| count.to_string());
                (counts, verdict(report, Palette::Plain), report.ok)
            }
            Err(error) => (Default::default(), error.to_owned(), false),
        };
        let [checks, runs] = counts.map(Cell::from);
        columns.row([
            case.title().into(),
            checks,
            runs,
            result.into(),
            Cell::verdict(is_ok),
        ]);
    }
    columns
}

fn checks(page: &mut Page, report: &Verify, models: &[Shown<'_>]) {
    page.heading("Checks");
    page.table(&summary::sites(&report.sites));
    page.paragraph("soft", &summary::sites_legend(&report.sites));
    page.figures(shares(report, models));
    page.details("Every check", |page| {
        page.table(&text::sites(&report.sites));
        page.paragraph("soft", &sites_legend(&report.sites));
    });
}

fn runs(page: &mut Page, report: &Verify) {
    page.heading("Runs");
    page.table(&summary::runs(&report.runs));
    page.paragraph("soft", &summary::runs_legend(&report.runs));
    page.figures(errors(report));
    page.details("Every run", |page| {
        page.table(&text::runs(&report.runs));
        page.paragraph("soft", RUNS_LEGEND);
    });
}

/// How much of their bounds quantities use at most, over the layers.
fn shares(report: &Verify, models: &[Shown<'_>]) -> Option<String> {
    let mut lines: Vec<Line> = vec![];
    for check in &report.sites {
        let mut sites = models.iter().flat_map(|shown| &shown.report.attention);
        let site = sites.find(|site| site.name == check.site);
        let layer = site.and_then(|site| Some((site.layer?, site.stack)));
        let error = check.max_error.filter(|_| check.bound > 0.0);
        let (Some((layer, stack)), Some(error)) = (layer, error) else {
            continue;
        };
        let name = match stack {
            None => check.quantity.clone(),
            Some(stack) => format!("{}, {stack}", check.quantity),
        };
        let share = summary::share(error, check.bound);
        add(&mut lines, &name, [layer as f64, share], f64::max);
    }
    let bound = Mark {
        name: "bound".to_owned(),
        y: 1.0,
    };
    let chart = Chart {
        lines: &lines,
        axes: ["layer", "error / bound"],
        scales: [Scale::Linear, Scale::Log],
        marks: &[bound],
    };
    page::lines("Errors as shares of their bounds, by layer", &chart)
}

/// The largest difference of any output over the length, for each way to run, and the least bound.
fn errors(report: &Verify) -> Option<String> {
    let mut lines: Vec<Line> = vec![];
    for run in &report.runs {
        if let Some(error) = run.max_abs {
            add(&mut lines, &way(run), [run.length as f64, error], f64::max);
        }
    }
    let bounds = report.runs.iter().filter_map(|run| Some((run, run.bound?)));
    for (run, bound) in bounds {
        add(
            &mut lines,
            "least bound",
            [run.length as f64, bound],
            f64::min,
        );
    }
    for line in &mut lines {
        line.points.sort_by(|a, b| a[0].total_cmp(&b[0]));
    }
    let chart = Chart {
        lines: &lines,
        axes: ["length (tokens)", "largest difference"],
        scales: [Scale::Log; 2],
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

/// Adds a point to the line of this name; one of two with the same x is kept.
fn add(lines: &mut Vec<Line>, name: &str, point: [f64; 2], kept: fn(f64, f64) -> f64) {
    let Some(line) = lines.iter_mut().find(|line| line.name == name) else {
        lines.push(Line {
            name: name.to_owned(),
            points: vec![point],
        });
        return;
    };
    match line.points.iter_mut().find(|old| old[0] == point[0]) {
        Some(old) => old[1] = kept(old[1], point[1]),
        None => line.points.push(point),
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
        let models = [
            (Path::new("x/a.onnx"), &model),
            (Path::new("b.onnx"), &model),
        ];
        let made = Made::now().unwrap();
        let page = html(&report(false), &models, &["tract 0.1".to_owned()], &made);
        for part in [
            "<title>a.onnx and b.onnx</title>",
            "posenc-onnx ",
            "1 of 2 comparisons out of bounds",
            "runtimes: tract 0.1",
            "opset 20",
            "logits &lt;a&amp;b&gt;",
            "rope: wavelengths of both, layers 0-1",
            "rope: frequencies of both, layers 0-1",
            "frequency (radians per token)",
            "<td class=\"n\">–</td>",
            "<summary>Every run</summary>",
            "First divergence: layers.1/Add_3",
            "b = Add(a, c)",
            "var(--s0)",
        ] {
            assert!(page.contains(part), "{part}");
        }
        for outside in ["<script", "http", "href=\"/", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn what_was_not_compared_has_no_part() {
        let model = Model::open(MODEL).unwrap();
        let mut report = report(true);
        report.sites.clear();
        let models = [(Path::new("a.onnx"), &model)];
        let page = html(&report, &models, &[], &Made::now().unwrap());
        assert!(!page.contains("Checks") && page.contains("Runs"));
    }

    #[test]
    fn files_of_one_name_have_their_paths() {
        let model = Model::open(MODEL).unwrap();
        let of = |paths: [&'static str; 2]| {
            let models = paths.map(|path| (Path::new(path), &model));
            named(&models)
                .into_iter()
                .map(|(name, _)| name.into_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(of(["x/a.onnx", "y/b.onnx"]), ["a.onnx", "b.onnx"]);
        assert_eq!(of(["x/a.onnx", "y/a.onnx"]), ["x/a.onnx", "y/a.onnx"]);
    }
}
