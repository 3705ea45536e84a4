//! What is shown of a result where there is no runtime, and what is left for the command line.

use posenc_cli::Search;
use posenc_cli::steps::{self, Proof, shown};
use posenc_onnx::Rewritten;
use posenc_onnx::report::Rewrite;
use posenc_onnx::request::Request;
use posenc_runtime::EvaluatorBackend;
use serde_json::{Value, json};

/// Compares the result with formulas and fills in the check of the report, as the command line does,
/// by the evaluator in f64. Says which checks there were; what could not be compared is a warning of
/// the report.
///
/// # Errors
/// When the model's own record cannot be followed, or a position is left that was not read.
pub fn prove(
    done: &mut Rewritten,
    request: &Request,
    report: &mut Rewrite,
) -> anyhow::Result<Value> {
    let before = report.warnings.len();
    let proof = (Proof::Wanted, request);
    steps::check(done, proof, &Search::default(), report)?;
    let is_complete = report.warnings.len() == before;
    let mut ran = vec![
        "The result was read again: its attention, its encodings and its limits are those of the \
         request, and everything else is as it was.",
    ];
    if done.is_respelled() && is_complete {
        ran.push(
            "The model ran with its own operators and with those that replaced them: its outputs are \
             the same.",
        );
    }
    if done.is_without_positions() && is_complete {
        ran.push(
            "Without its encodings, the model ran on equal tokens, and on different tokens in two \
             orders: no position is left.",
        );
    }
    let mut sites = vec![];
    if done.is_verifiable()?
        && let Ok(verification) = done.verify(&EvaluatorBackend)
        && !verification.checks().is_empty()
    {
        sites = verification.checks().to_vec();
        ran.push(
            "What encodes positions was cut out of the result, computed, and compared with its \
             formula at every site.",
        );
    }
    let mut left = vec![];
    if !is_complete {
        left.push("The warnings above say what was not compared.");
    }
    left.push(
        "Runs were in f64: how a runtime rounds, and whether it takes the model, is not shown.",
    );
    Ok(json!({"ran": ran, "left": left, "sites": shown::checks(&sites)}))
}
