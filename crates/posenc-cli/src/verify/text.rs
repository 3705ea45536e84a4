//! The report of a verification as text.

use posenc_onnx::report::{Run, SiteCheck, Verify};

use crate::columns::{Align, Cell, Columns, DASH};
use crate::number::{counted, fixed, rough};
use crate::terminal::Palette;

const LEFT: Align = Align::Left;
const RIGHT: Align = Align::Right;

/// The whole report.
pub(super) fn text(report: &Verify, palette: Palette) -> String {
    let mut text = String::new();
    if !report.sites.is_empty() {
        let columns = sites(&report.sites, palette);
        text += &section("Sites", &columns, SITES_LEGEND, palette);
    }
    if !report.runs.is_empty() {
        let columns = runs(&report.runs, palette);
        text += &section("Runs", &columns, RUNS_LEGEND, palette);
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
pub(super) const SITES_LEGEND: &str = "\
error: absolute difference from the formula in f64, of the element closest to its bound
bound: allowed difference of that element, from an error model
–: not a number, another shape, or no rotation";

/// What the columns of runs mean.
pub(super) const RUNS_LEGEND: &str = "\
error: largest absolute difference from the other model, or from the first run
bound: allowed difference of the element closest to its bound
–: nothing to compare with, not a number, or another shape";

fn section(title: &str, columns: &str, legend: &str, palette: Palette) -> String {
    let mut text = format!("{}\n{columns}", palette.bold(title));
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

fn sites(sites: &[SiteCheck], palette: Palette) -> String {
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
    columns.text(2, palette)
}

fn runs(runs: &[Run], palette: Palette) -> String {
    let mut columns = Columns::new(&[
        ("runtime", LEFT),
        ("provider", LEFT),
        ("optimization", LEFT),
        ("length", RIGHT),
        ("batch", RIGHT),
        ("output", LEFT),
        ("error", RIGHT),
        ("bound", RIGHT),
        ("cosine", RIGHT),
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
            run.output.clone().into(),
            or_dash(run.max_abs, rough).into(),
            or_dash(run.bound, rough).into(),
            or_dash(run.cosine, |c| fixed(c, 6)).into(),
            Cell::verdict(run.ok),
            run.first_divergence.clone().unwrap_or_default().into(),
        ]);
    }
    columns.text(2, palette)
}

/// A number, or a dash.
pub(super) fn or_dash(number: Option<f64>, format: impl Fn(f64) -> String) -> String {
    number.map_or_else(|| DASH.to_owned(), format)
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::*;

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
            output: "logits <a&b>".into(),
            max_abs: ok.then_some(2e-5),
            rel: ok.then_some(1e-5),
            cosine: ok.then_some(1.0),
            bound: Some(2e-4),
            ok,
            first_divergence: (!ok).then(|| "layers.1/Add_3".into()),
            placement: BTreeMap::new(),
        };
        Verify::new(vec![run], vec![site])
    }

    #[test]
    fn what_is_within_bounds_and_what_is_not() {
        let both = [true, false]
            .map(|ok| text(&report(ok), Palette::Plain))
            .concat();
        insta::assert_snapshot!(both);
    }

    #[test]
    fn no_comparison_at_all_is_reported() {
        let nothing = Verify::new(vec![], vec![]);
        assert_eq!(
            text(&nothing, Palette::Plain),
            "nothing could be compared\n"
        );
    }
}
