//! The proof of a rewrite: what was emitted, run by a runtime, against the formula in f64.

use posenc_ir::Model;
use posenc_onnx::detect::Detection;
use posenc_onnx::prove::{Expected, check_rope, expectations};
use posenc_onnx::report::{Check, Rewrite};
use posenc_onnx::rewrite::Rewritten;

use crate::backend::Choice;
use crate::exit::Failure;

/// Whether a rewrite may stand without its proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// A warning says why there is none.
    Wanted,
    /// It may not.
    Required,
}

/// Fills in the check of a report. The embedded runtime does it; what that cannot run goes to
/// ONNX Runtime.
///
/// # Errors
/// When the model's own record cannot be followed, or a required proof cannot be had.
pub(super) fn fill(
    model: &Model,
    done: &Rewritten,
    proof: Proof,
    report: &mut Rewrite,
) -> anyhow::Result<()> {
    let insert = done.proof.as_ref().is_some_and(|p| !p.is_empty());
    let mut expected = vec![];
    for found in std::iter::once(&done.found).chain(&done.beside) {
        if !found.rotary.is_empty() {
            expected.push((found, expectations(model, found)?));
        }
    }
    if expected.is_empty() && !insert {
        return Ok(());
    }
    let mut reasons = vec![];
    for choice in Choice::defaults() {
        match run(model, done, &expected, &choice) {
            Ok(Some(check)) => {
                report.check = Some(check);
                return Ok(());
            }
            Ok(None) => {
                let warning = "what was put in shows in no scores of its own, so it was read back \
                               and not run against its formula";
                if proof == Proof::Required {
                    let path = model
                        .path()
                        .map_or_else(String::new, |p| p.display().to_string());
                    return Err(Failure::unsupported(format!("{path}: {warning}")).into());
                }
                report.warnings.push(warning.to_owned());
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
            let warning = format!("the result was not run, only evaluated: {why}");
            report.warnings.push(warning);
            Ok(())
        }
    }
}

/// The summary of what was compared, rotations in every branch; `None` where nothing was.
fn run(
    model: &Model,
    done: &Rewritten,
    expected: &[(&Detection, Vec<Expected>)],
    choice: &Choice,
) -> anyhow::Result<Option<Check>> {
    let runtime = choice.open()?;
    let mut checks = vec![];
    for (found, expected) in expected {
        checks.extend(check_rope(model, found, expected, &*runtime)?);
    }
    if let Some(proof) = &done.proof {
        checks.extend(proof.check(&*runtime)?);
    }
    Ok((!checks.is_empty()).then(|| Check::of(&checks)))
}
