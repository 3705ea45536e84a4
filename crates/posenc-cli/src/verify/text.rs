//! The report of a verification as text.

use posenc_onnx::report::{Run, SiteCheck, Ulp, Verify};

use super::summary;
use crate::columns::{Align, Cell, Columns, or_dash};
use crate::number::{counted, fixed, rough};
use crate::terminal::{Palette, Terminal, Verbosity, one_line};

const LEFT: Align = Align::Left;
const RIGHT: Align = Align::Right;

/// How much of a report is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// What is out of bounds.
    Failures,
    /// A line for each quantity and for each way to run, and what is out of bounds.
    Summary,
    /// Every comparison.
    All,
}

impl Detail {
    /// By `--quiet` and `--verbose`.
    pub(super) fn of(terminal: &Terminal) -> Self {
        match terminal.verbosity() {
            Verbosity::Quiet => Self::Failures,
            Verbosity::Normal => Self::Summary,
            Verbosity::Verbose => Self::All,
        }
    }
}

/// The report.
pub(super) fn text(report: &Verify, detail: Detail, palette: Palette) -> String {
    let failed = |text: &mut String| {
        let bad = sites(report.sites.iter().filter(|site| !site.ok));
        *text += &section("Checks out of bounds", &bad, "", palette);
        let bad = runs(report.runs.iter().filter(|run| !run.ok));
        *text += &section("Runs out of bounds", &bad, "", palette);
        *text += &divergence(report, palette);
    };
    let mut text = String::new();
    match detail {
        Detail::Failures if report.ok => return text,
        Detail::Failures => {
            failed(&mut text);
            return text + &verdict(report, palette) + "\n";
        }
        Detail::Summary => {
            let sites = summary::sites(&report.sites);
            let legend = summary::sites_legend(&report.sites);
            text += &section("Checks", &sites, &legend, palette);
            let runs = summary::runs(&report.runs);
            text += &section("Runs", &runs, &summary::runs_legend(&report.runs), palette);
            failed(&mut text);
            if !report.sites.is_empty() || !report.runs.is_empty() {
                text += &format!("{}\n", palette.dim("-v shows every comparison"));
            }
        }
        Detail::All => {
            let legend = sites_legend(&report.sites);
            text += &section("Checks", &sites(&report.sites), &legend, palette);
            text += &section("Runs", &runs(&report.runs), RUNS_LEGEND, palette);
            text += &divergence(report, palette);
        }
    }
    for warning in &report.warnings {
        text += &format!("{warning}\n");
    }
    if !report.warnings.is_empty() {
        text.push('\n');
    }
    text + &verdict(report, palette) + "\n" + &unchecked(report)
}

/// What was not checked, in one line; empty where there is nothing to say.
pub(super) fn unchecked(report: &Verify) -> String {
    if report.unchecked.is_empty() {
        return String::new();
    }
    format!("not checked: {}\n", report.unchecked.join("; "))
}

/// What the columns of sites mean.
pub(super) fn sites_legend(sites: &[SiteCheck]) -> String {
    let legend = "\
error: absolute difference from the formula in f64, of the element closest to its bound
bound: allowed difference of that element, from an error model
–: not a number, another shape, or no rotation";
    let records = summary::records_legend(sites).map(|line| format!("\n{line}"));
    legend.to_owned() + &records.collect::<String>()
}

/// What the columns of runs mean.
pub(super) const RUNS_LEGEND: &str = "\
error: largest absolute difference from the other model, or from the first run
bound: allowed difference of the element closest to its bound
ulp: differences in units in the last place; top-1: share of tokens with the same likeliest next token
–: nothing to compare with, not a number, or another shape
not compared: no other run, or the one that others are compared with
not judged: a rewrite may make this difference";

/// A table under its title; nothing without rows.
fn section(title: &str, columns: &Columns, legend: &str, palette: Palette) -> String {
    if columns.is_empty() {
        return String::new();
    }
    let mut text = format!("{}\n{}", palette.bold(title), columns.text(2, palette));
    for line in legend.lines() {
        text += &format!("  {}\n", palette.dim(line));
    }
    text + "\n"
}

/// The result in one line.
pub(super) fn verdict(report: &Verify, palette: Palette) -> String {
    // A run with nothing to compare with counts only if it failed.
    let runs = report.runs.iter().filter(|r| r.is_comparison() || !r.ok);
    let compared = runs.count() + report.sites.len();
    let bad = report.runs.iter().filter(|r| !r.ok).count()
        + report.sites.iter().filter(|s| !s.ok).count();
    match (report.ok, compared) {
        (_, 0) => palette.bad("nothing could be compared"),
        (true, n) => palette.good(format!("{} within bounds", counted(n, "comparison"))),
        (false, n) => palette.bad(format!(
            "{bad} of {} out of bounds",
            counted(n, "comparison")
        )),
    }
}

/// A row for each check.
pub(super) fn sites<'a>(sites: impl IntoIterator<Item = &'a SiteCheck>) -> Columns {
    let mut columns = Columns::new(&[
        ("site", LEFT),
        ("quantity", LEFT),
        ("error", RIGHT),
        ("bound", RIGHT),
        ("", LEFT),
    ]);
    for site in sites {
        columns.row([
            site.site.clone().into(),
            site.quantity.clone().into(),
            or_dash(site.max_error, rough).into(),
            rough(site.bound).into(),
            Cell::verdict(site.ok),
        ]);
    }
    columns
}

/// Quantiles of differences in units in the last place.
fn ulp(ulp: Ulp) -> String {
    [ulp.median, ulp.p99].map(rough).join(", ")
}

/// How many elements are no numbers; empty where there are none.
fn not_finite(run: &Run) -> String {
    let count = |count: usize, word: &str| (count > 0).then(|| format!("{count} {word}"));
    let counts = [count(run.nan, "NaN"), count(run.infinite, "infinite")];
    counts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The nodes around the first value that is out of bounds; empty where none was looked for.
fn divergence(report: &Verify, palette: Palette) -> String {
    let mut text = String::new();
    for (place, nodes) in divergences(report) {
        let title = palette.bold("First divergence:");
        text += &format!("{title} {}\n{}\n", one_line(place), nodes.text(2, palette));
    }
    text
}

/// Where runs diverge, and a row for each node there.
pub(super) fn divergences(report: &Verify) -> impl Iterator<Item = (&str, Columns)> {
    report.runs.iter().filter_map(|run| {
        let place = run.first_divergence.as_deref()?;
        let mut columns = Columns::new(&[("", LEFT), ("node", LEFT), ("error", RIGHT), ("", LEFT)]);
        for near in &run.neighbourhood {
            let mark = if near.is_first { "→" } else { " " };
            columns.row([
                mark.to_owned().into(),
                near.node.clone().into(),
                or_dash(near.max_abs, rough).into(),
                near.ok.map(Cell::verdict).unwrap_or_default(),
            ]);
        }
        Some((place, columns))
    })
}

/// A row for each run.
pub(super) fn runs<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Columns {
    let mut columns = Columns::new(&[
        ("runtime", LEFT),
        ("provider", LEFT),
        ("optimization", LEFT),
        ("length", RIGHT),
        ("batch", RIGHT),
        ("padding", LEFT),
        ("output", LEFT),
        ("error", RIGHT),
        ("bound", RIGHT),
        ("ulp (median, 99%)", RIGHT),
        ("cosine", RIGHT),
        ("top-1", RIGHT),
        ("not finite", RIGHT),
        ("", LEFT),
        ("first divergence", LEFT),
    ]);
    for run in runs {
        columns.row([
            run.runtime.clone().into(),
            run.provider.clone().into(),
            run.optimization.clone().into(),
            run.length.to_string().into(),
            run.batch.to_string().into(),
            run.padding.clone().into(),
            run.output.clone().into(),
            or_dash(run.max_abs, rough).into(),
            or_dash(run.bound, rough).into(),
            run.ulp.map(ulp).unwrap_or_default().into(),
            or_dash(run.cosine, |c| fixed(c, 6)).into(),
            run.top1
                .map(|share| fixed(share, 3))
                .unwrap_or_default()
                .into(),
            not_finite(run).into(),
            summary::outcome(run.ok, run),
            run.first_divergence.clone().unwrap_or_default().into(),
        ]);
    }
    columns
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use posenc_onnx::report::{Neighbour, Ulp};

    use super::*;

    fn near(node: &str, is_first: bool, max_abs: Option<f64>) -> Neighbour {
        Neighbour {
            node: node.into(),
            is_first,
            max_abs,
            ok: Some(!is_first),
        }
    }

    pub(in crate::verify) fn report(ok: bool) -> Verify {
        let site = SiteCheck {
            site: "layers.0".into(),
            quantity: "q".into(),
            max_error: Some(1.25e-7),
            bound: 1e-6,
            ok: true,
        };
        let run = Run {
            runtime: "onnxruntime".into(),
            provider: "cpu".into(),
            optimization: "off".into(),
            length: 65,
            batch: 2,
            padding: "right".into(),
            output: "logits <a&b>".into(),
            max_abs: ok.then_some(2e-5),
            rel: ok.then_some(1e-5),
            cosine: ok.then_some(1.0),
            ulp: ok.then_some(Ulp {
                median: 0.5,
                p99: 12.0,
                max: 340.0,
            }),
            top1: ok.then_some(0.9375),
            nan: usize::from(!ok),
            infinite: 0,
            bound: Some(2e-4),
            ok,
            first_divergence: (!ok).then(|| "layers.1/Add_3".into()),
            neighbourhood: match ok {
                true => vec![],
                false => vec![
                    near("a = MatMul(x, w)", false, Some(1e-6)),
                    near("b = Add(a, c)", true, None),
                ],
            },
            placement: BTreeMap::new(),
        };
        Verify::new(vec![run], vec![site])
    }

    #[test]
    fn what_is_within_bounds_and_what_is_not() {
        for (name, detail) in [
            ("failures", Detail::Failures),
            ("summary", Detail::Summary),
            ("all", Detail::All),
        ] {
            let both = [true, false].map(|ok| text(&report(ok), detail, Palette::Plain));
            insta::assert_snapshot!(name, both.concat());
        }
    }

    #[test]
    fn a_run_without_a_bound_says_why() {
        let mut run = report(true).runs.remove(0);
        assert_eq!(summary::outcome(true, &run).words(), "ok");
        run.bound = None;
        assert_eq!(summary::outcome(true, &run).words(), "not judged");
        assert_eq!(summary::outcome(false, &run).words(), "FAIL");
        run.max_abs = None;
        assert_eq!(summary::outcome(true, &run).words(), "not compared");
        let legend = summary::runs_legend(&[run]);
        assert!(legend.contains("not compared: no other run"), "{legend}");
        assert!(!legend.contains("not judged"), "{legend}");
    }

    #[test]
    fn no_comparison_at_all_is_reported() {
        let nothing = Verify::new(vec![], vec![]);
        for detail in [Detail::Failures, Detail::Summary, Detail::All] {
            assert_eq!(
                text(&nothing, detail, Palette::Plain),
                "nothing could be compared\n"
            );
        }
    }
}
