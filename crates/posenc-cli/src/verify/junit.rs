//! Verifications as JUnit XML, which build servers show: a suite for each model, a case for each comparison.

use std::path::Path;

use posenc_onnx::report::{Run, SiteCheck, Verify};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::summary::{NOT_COMPARED, NOT_JUDGED};
use crate::files;
use crate::number::rough;

/// What is known of one model.
pub(super) type Outcome<'a> = Result<&'a Verify, &'a str>;

/// Writes the file.
pub(super) fn write<'a>(
    path: &Path,
    outcomes: impl IntoIterator<Item = (&'a str, Outcome<'a>)>,
) -> anyhow::Result<()> {
    files::write_report(path, &text(outcomes)?)
}

/// What XML can hold: names are read from models.
fn allowed(text: &str) -> String {
    let is_none = |c: char| matches!(c, '\u{fffe}' | '\u{ffff}') || c.is_control();
    text.replace(is_none, "\u{fffd}")
}

fn text<'a>(outcomes: impl IntoIterator<Item = (&'a str, Outcome<'a>)>) -> anyhow::Result<String> {
    let mut report = Report::new("posenc-onnx verify");
    for (name, outcome) in outcomes {
        let name = &*allowed(name);
        let mut suite = TestSuite::new(name);
        match outcome {
            Ok(found) => {
                let sites = found
                    .sites
                    .iter()
                    .map(|site| site_case(site, &found.warnings));
                suite.add_test_cases(sites.map(|of_site| case(name, of_site)));
                suite.add_test_cases(found.runs.iter().map(|run| case(name, run_case(run))));
                if found.sites.is_empty() && found.runs.is_empty() {
                    let why = "nothing could be compared".to_owned();
                    let nothing = ("comparisons".to_owned(), Judged::Wrong(why));
                    suite.add_test_case(case(name, nothing));
                }
            }
            Err(error) => {
                let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
                status.set_message(allowed(error));
                let mut errored = TestCase::new("verify", status);
                errored.set_classname(name);
                suite.add_test_case(errored);
            }
        }
        report.add_test_suite(suite);
    }
    Ok(report.to_string()?)
}

/// What is known of a comparison.
enum Judged {
    Right,
    /// With the reason.
    Wrong(String),
    /// There was nothing to compare with, or no bound; with the reason.
    Not(&'static str),
}

/// A comparison with its name.
fn case(model: &str, (name, judged): (String, Judged)) -> TestCase {
    let status = match judged {
        Judged::Right => TestCaseStatus::success(),
        Judged::Wrong(why) => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_message(allowed(&why));
            status
        }
        Judged::Not(why) => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(why);
            status
        }
    };
    let mut case = TestCase::new(allowed(&name), status);
    case.set_classname(model);
    case
}

/// A check; what has no number may be explained by a warning about its site.
fn site_case(site: &SiteCheck, warnings: &[String]) -> (String, Judged) {
    let name = format!("{} {}", site.site, site.quantity);
    let told = || {
        warnings
            .iter()
            .find(|why| why.contains(&site.site))
            .cloned()
    };
    let why = || match site.max_error {
        None => told().unwrap_or_else(|| out_of_bounds(None, None)),
        error => out_of_bounds(error, Some(site.bound)),
    };
    match site.ok {
        true => (name, Judged::Right),
        false => (name, Judged::Wrong(why())),
    }
}

fn run_case(run: &Run) -> (String, Judged) {
    let name = format!(
        "{} {} optimization {}, length {}, batch {}, padding {}, {}",
        run.runtime, run.provider, run.optimization, run.length, run.batch, run.padding, run.output
    );
    let why = || {
        let why = out_of_bounds(run.max_abs, run.bound);
        match &run.first_divergence {
            Some(first) => format!("{why}; first in {first}"),
            None => why,
        }
    };
    let judged = match (run.ok, run.is_comparison(), run.max_abs) {
        (false, ..) => Judged::Wrong(why()),
        (true, true, _) => Judged::Right,
        (true, false, Some(_)) => Judged::Not(NOT_JUDGED),
        (true, false, None) => Judged::Not(NOT_COMPARED),
    };
    (name, judged)
}

fn out_of_bounds(error: Option<f64>, bound: Option<f64>) -> String {
    match (error, bound) {
        (Some(error), Some(bound)) => {
            format!("differs by {}, more than {}", rough(error), rough(bound))
        }
        _ => "is not a number, or has another shape".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::text::tests::report;

    #[test]
    fn a_case_for_each_comparison_and_an_error_for_what_did_not_run() {
        let [good, bad] = [true, false].map(report);
        let outcomes = [
            ("a.onnx", Ok(&good)),
            ("b.onnx", Ok(&bad)),
            ("c.onnx", Err("c.onnx: No such file or directory")),
        ];
        let text = text(outcomes).unwrap();
        insta::assert_snapshot!(text);
    }

    #[test]
    fn names_that_xml_cannot_hold_are_written_without() {
        let text = text([("a\u{ffff}\u{8}.onnx", Err("no \u{fffe}"))]).unwrap();
        let is_bad = |c: char| matches!(c, '\u{fffe}' | '\u{ffff}' | '\u{8}');
        assert!(
            !text.contains(is_bad) && text.contains("a\u{fffd}\u{fffd}.onnx"),
            "{text}"
        );
    }

    #[test]
    fn runs_without_a_bound_are_skipped_with_the_reason() {
        let mut found = report(true);
        found.runs[0].bound = None;
        for (error, why) in [(None, NOT_COMPARED), (Some(0.5), NOT_JUDGED)] {
            found.runs[0].max_abs = error;
            let text = text([("a.onnx", Ok(&found))]).unwrap();
            assert!(text.contains("skipped=\"1\""), "{text}");
            assert!(
                text.contains(&format!("<skipped message=\"{why}\"/>")),
                "{text}"
            );
        }
        found.runs[0].ok = false;
        let text = text([("a.onnx", Ok(&found))]).unwrap();
        assert!(
            text.contains("failures=\"1\"") && text.contains("skipped=\"0\""),
            "{text}"
        );
    }

    #[test]
    fn a_warning_says_what_is_wrong_with_a_site() {
        let mut found = report(true);
        found.sites[0].ok = false;
        found.sites[0].max_error = None;
        found.warnings = vec!["layers.0 is another".to_owned()];
        let text = text([("a.onnx", Ok(&found))]).unwrap();
        assert!(
            text.contains("<failure message=\"layers.0 is another\"/>"),
            "{text}"
        );
    }
}
