//! The proof of a rewrite: the emitted nodes, run by a runtime, against the formula in f64.

use posenc_ir::Model;
use posenc_onnx::detect::Found;
use posenc_onnx::prove::{Expected, check_rope, expectations};
use posenc_onnx::report::{Check, Rewrite};
use posenc_onnx::rewrite::Rewritten;

use crate::backend::Choice;
use crate::exit::Failure;

/// Whether a rewrite needs a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// Without one, there is a warning.
    Wanted,
    /// Without one, the rewrite fails.
    Required,
}

/// Fills in the check of a report, by the embedded runtime or, if that cannot run it, by ONNX
/// Runtime.
///
/// # Errors
/// When the metadata of the model is invalid, or a required proof is not possible.
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
                let warning = "the inserted encoding does not affect scores; checked by detection \
                               only";
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
            let warning =
                format!("checked by the built-in evaluator only; no runtime could run it: {why}");
            report.warnings.push(warning);
            Ok(())
        }
    }
}

/// The summary of all comparisons, including rotations in every branch; `None` if there are none.
fn run(
    model: &Model,
    done: &Rewritten,
    expected: &[(&Found, Vec<Expected>)],
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
