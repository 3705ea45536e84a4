//! The proof of a rewrite: the emitted rotations, run by a runtime, against the formula in f64.

use posenc_ir::Model;
use posenc_onnx::detect::Detection;
use posenc_onnx::report::{Check, Rewrite};
use posenc_onnx::verify::{Expected, VerifyError, check_rope, expectations, summary};
use posenc_runtime::Backend;

/// Fills in the check of a report. The embedded runtime does it; what that cannot run goes to
/// ONNX Runtime, and where none can, a warning says so.
pub(super) fn fill(
    model: &Model,
    found: &Detection,
    report: &mut Rewrite,
) -> Result<(), VerifyError> {
    if found.rotary.is_empty() {
        return Ok(());
    }
    let expected = expectations(model, found)?;
    let mut reasons: Vec<String> = vec![];
    for open in [embedded, loaded] {
        match open().and_then(|backend| run(model, found, &expected, &*backend)) {
            Ok(check) => {
                report.check = Some(check);
                return Ok(());
            }
            Err(why) => reasons.push(why),
        }
    }
    report.warnings.push(format!(
        "the result was not run, only evaluated: {}",
        reasons.join("; ")
    ));
    Ok(())
}

fn run(
    model: &Model,
    found: &Detection,
    expected: &[Expected],
    backend: &dyn Backend,
) -> Result<Check, String> {
    check_rope(model, found, expected, backend)
        .map(|checks| summary(&checks))
        .map_err(|e| format!("{} {}: {e}", backend.name(), backend.version()))
}

#[cfg(feature = "tract")]
fn embedded() -> Result<Box<dyn Backend>, String> {
    Ok(Box::new(posenc_runtime::TractBackend::new()))
}

#[cfg(not(feature = "tract"))]
fn embedded() -> Result<Box<dyn Backend>, String> {
    Err("tract is not built in".to_owned())
}

#[cfg(feature = "ort")]
fn loaded() -> Result<Box<dyn Backend>, String> {
    match posenc_runtime::OrtBackend::open(&crate::places::gather()) {
        Ok(backend) => Ok(Box::new(backend)),
        Err(why) => Err(why.to_string()),
    }
}

#[cfg(not(feature = "ort"))]
fn loaded() -> Result<Box<dyn Backend>, String> {
    Err("ONNX Runtime is not built in".to_owned())
}
