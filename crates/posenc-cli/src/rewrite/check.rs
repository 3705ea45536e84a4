//! The proof of a rewrite: the emitted rotations, run by a runtime, against the formula in f64.

use posenc_ir::Model;
use posenc_onnx::detect::Detection;
use posenc_onnx::report::{Check, Rewrite};
use posenc_onnx::verify::{Expected, check_rope, expectations};

use crate::backend::Choice;

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
    found: &Detection,
    proof: Proof,
    report: &mut Rewrite,
) -> anyhow::Result<()> {
    if found.rotary.is_empty() {
        return Ok(());
    }
    let expected = expectations(model, found)?;
    let mut reasons = vec![];
    for choice in Choice::defaults() {
        match run(model, found, &expected, &choice) {
            Ok(check) => {
                report.check = Some(check);
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

fn run(
    model: &Model,
    found: &Detection,
    expected: &[Expected],
    choice: &Choice,
) -> anyhow::Result<Check> {
    let runtime = choice.open()?;
    Ok(Check::of(&check_rope(model, found, expected, &*runtime)?))
}
