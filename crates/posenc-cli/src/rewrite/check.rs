//! The check of a rewrite: what was inserted or rescaled, run by a runtime, against its formula in
//! f64.

use posenc_onnx::Rewritten;
use posenc_onnx::Verification;
use posenc_onnx::report::Rewrite;

use crate::backend::Choice;
use crate::exit::Failure;

/// Whether a rewrite is written without the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// A warning says why there is none.
    Wanted,
    /// It is not.
    Required,
}

/// Fills in the check of a report. The embedded runtime makes it; what that cannot run is left to
/// ONNX Runtime.
///
/// # Errors
/// When the model's own record cannot be followed, or a required comparison cannot be made.
pub(super) fn fill(done: &Rewritten, proof: Proof, report: &mut Rewrite) -> anyhow::Result<()> {
    if !done.is_verifiable()? {
        return Ok(());
    }
    let mut reasons = vec![];
    for choice in Choice::defaults() {
        match run(done, &choice) {
            Ok(verification) => {
                report.check = verification.summary();
                if report.check.is_none() {
                    not_compared(done, proof, report)?;
                }
                return Ok(());
            }
            Err(why) => reasons.push(why),
        }
    }
    match (proof, reasons.pop()) {
        (Proof::Required, Some(last)) => Err(last),
        (_, last) => {
            let reasons: Vec<String> = reasons.iter().chain(&last).map(|e| e.to_string()).collect();
            let why = reasons.join("; ");
            let warning =
                format!("checked by the built-in evaluator only; no runtime could run it: {why}");
            report.warnings.push(warning);
            Ok(())
        }
    }
}

fn run(done: &Rewritten, choice: &Choice) -> anyhow::Result<Verification> {
    Ok(done.verify(&*choice.open()?)?)
}

/// Warns that nothing of what was inserted could be compared, or refuses where it has to be.
fn not_compared(done: &Rewritten, proof: Proof, report: &mut Rewrite) -> anyhow::Result<()> {
    let warning = "the inserted encoding does not affect scores; checked by detection only";
    if proof == Proof::Required {
        let path = done.as_ir().path();
        let path = path.map_or_else(String::new, |p| p.display().to_string());
        return Err(Failure::unsupported(format!("{path}: {warning}")).into());
    }
    report.warnings.push(warning.to_owned());
    Ok(())
}
