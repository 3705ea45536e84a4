//! `verify`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use posenc_cli::Search;
use posenc_cli::steps::{Choice, Failure, Runtimes};
use posenc_onnx::Model;
use posenc_onnx::verify::{Bisect, VerifyOptions, verify as compare};
use posenc_runtime::Fallback;
use pyo3::prelude::*;

use crate::errors::at;
use crate::models::Source;
use crate::tensors::{Array, input};
use crate::work::wait;

/// The report of `verify`, as JSON.
#[pyfunction]
#[pyo3(signature = (
    model, other, providers, no_fallback, lengths, inputs, atol, rtol, bisect, onnxruntime, progress
))]
#[allow(
    clippy::too_many_arguments,
    reason = "they are the keywords of a function of the package"
)]
pub(crate) fn verify(
    py: Python<'_>,
    model: Source,
    other: Option<Source>,
    providers: Vec<String>,
    no_fallback: bool,
    lengths: Vec<usize>,
    inputs: Vec<Array>,
    atol: Option<f64>,
    rtol: Option<f64>,
    bisect: bool,
    onnxruntime: Option<PathBuf>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    let search = Search::Python(onnxruntime);
    wait(py, progress, move |stages| {
        let choice = |name: &String| {
            name.parse::<Choice>()
                .map_err(|why| Failure::usage(format!("providers: {why}")))
        };
        let choices: Result<Vec<Choice>, Failure> = providers.iter().map(choice).collect();
        let runtimes = Runtimes::open(&choices?, &search)?;
        let inputs: Result<_> = inputs.iter().map(input).collect();
        let options = VerifyOptions {
            providers: runtimes.providers,
            fallback: if no_fallback {
                Fallback::Refused
            } else {
                Fallback::Allowed
            },
            lengths,
            inputs: inputs?,
            atol,
            rtol,
            bisect: if bisect {
                Bisect::FirstFailure
            } else {
                Bisect::No
            },
            ..VerifyOptions::default()
        };
        stages.begin("read")?;
        let path = model.path().map(Path::to_owned);
        let model = model.open()?;
        let other = other.map(Source::open).transpose()?;
        stages.begin("verify")?;
        let other = other.as_ref().map(Model::as_ir);
        let report = compare(model.as_ir(), other, &options, &runtimes.backends);
        let report = report.map_err(|error| at(path.as_deref(), error))?;
        Ok(serde_json::to_string(&report)?)
    })
}
