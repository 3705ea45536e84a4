//! Verifications as JUnit XML, which build servers show: a suite for each model, a case for each comparison.

use std::path::Path;

use posenc_onnx::report::{Run, SiteCheck, Verify};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use crate::exit::Failure;
use crate::number::rough;

/// What is known of one model.
pub(super) type Outcome<'a> = Result<&'a Verify, &'a str>;

/// Writes the file.
pub(super) fn write<'a>(
    path: &Path,
    outcomes: impl IntoIterator<Item = (&'a str, Outcome<'a>)>,
) -> anyhow::Result<()> {
    let text = text(outcomes)?;
    let written = std::fs::write(path, text);
    crate::model::named(path, written.map_err(|e| Failure::usage(e.to_string())))
}

fn text<'a>(outcomes: impl IntoIterator<Item = (&'a str, Outcome<'a>)>) -> anyhow::Result<String> {
    let mut report = Report::new("posenc-onnx verify");
    for (name, outcome) in outcomes {
        let mut suite = TestSuite::new(name);
        match outcome {
            Ok(found) => {
                suite.add_test_cases(found.sites.iter().map(|site| case(name, site_case(site))));
                suite.add_test_cases(found.runs.iter().map(|run| case(name, run_case(run))));
                if found.sites.is_empty() && found.runs.is_empty() {
                    let why = "nothing could be compared".to_owned();
                    suite.add_test_case(case(name, ("comparisons".to_owned(), Some(why))));
                }
            }
            Err(error) => {
                let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
                status.set_message(error);
                let mut errored = TestCase::new("verify", status);
                errored.set_classname(name);
                suite.add_test_case(errored);
            }
        }
        report.add_test_suite(suite);
    }
    Ok(report.to_string()?)
}

/// A comparison with its name, and why it failed.
fn case(model: &str, (name, failure): (String, Option<String>)) -> TestCase {
    let status = match failure {
        None => TestCaseStatus::success(),
        Some(why) => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_message(why);
            status
        }
    };
    let mut case = TestCase::new(name, status);
    case.set_classname(model);
    case
}

fn site_case(site: &SiteCheck) -> (String, Option<String>) {
    let name = format!("{} {}", site.site, site.quantity);
    (
        name,
        (!site.ok).then(|| out_of_bounds(site.max_error, Some(site.bound))),
    )
}

fn run_case(run: &Run) -> (String, Option<String>) {
    let name = format!(
        "{} {} optimization {}, length {}, batch {}, {}",
        run.runtime, run.provider, run.optimization, run.length, run.batch, run.output
    );
    let why = || {
        let why = out_of_bounds(run.max_abs, run.bound);
        match &run.first_divergence {
            Some(first) => format!("{why}; first in {first}"),
            None => why,
        }
    };
    (name, (!run.ok).then(why))
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
}
