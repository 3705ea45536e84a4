//! `rewrite`, as a plan and its result.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use posenc_cli::Search;
use posenc_cli::steps::{self, ExternalData, Failure, Proof, config, keywords, output};
use posenc_ir::fingerprint_of;
use posenc_onnx::report::{Endpoint, Rewrite};
use posenc_onnx::request::{Config, Request, Tensors};
use posenc_onnx::{Model, PlannedEdit, RewriteError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use serde_json::{Value, json};

use crate::errors::{at, raise};
use crate::inspect::Named;
use crate::models::Source;
use crate::tensors::{Array, learned};
use crate::work::wait;

/// Learned values, as Python hands them over.
#[derive(FromPyObject)]
pub(crate) enum Learned {
    /// Arrays.
    Arrays(Vec<Array>),
    /// A safetensors file, with its name.
    File(String, PyBackedBytes),
}

/// Decides what a request changes in a model.
#[pyfunction]
#[pyo3(signature = (model, options, hf_config, model_config, params, progress))]
pub(crate) fn plan(
    py: Python<'_>,
    model: Source,
    options: &str,
    hf_config: Option<Named>,
    model_config: Option<Named>,
    params: Option<Learned>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Plan> {
    let given = || -> Result<Request> {
        let config = |named: Option<Named>| named.map(|(name, text)| Config::from_text(name, text));
        let mut request = keywords::request(options)?;
        request.hf_config = config(hf_config);
        let found = || model.path().and_then(Config::next_to);
        request.model_config = config(model_config).or_else(found);
        request.params = match params {
            None => None,
            Some(Learned::Arrays(arrays)) => Some(learned(&arrays)?),
            Some(Learned::File(name, bytes)) => Some(Tensors::from_bytes(name, bytes.to_vec())),
        };
        request.check_supported().map_err(RewriteError::from)?;
        Ok(request)
    };
    let path = model.path().map(Path::to_owned);
    let request = given().map_err(|error| raise(py, &at(path.as_deref(), error)))?;
    wait(py, progress, move |stages| {
        stages.begin("read")?;
        let model = model.open()?;
        stages.begin("plan")?;
        let planned = planned(&model, &request)?;
        Ok(Plan {
            text: planned.to_string(),
            report: report(&planned).to_string(),
            made: Mutex::new(Some(planned)),
            model: Arc::new(model),
            request,
        })
    })
}

fn planned(model: &Model, request: &Request) -> Result<posenc_onnx::Plan<'static>> {
    let planned = model.plan(request.clone());
    let planned = planned.map_err(|error| at(model.as_ir().path(), error))?;
    Ok(planned.into_owned())
}

/// What a plan says, as the package reads it.
fn report(planned: &posenc_onnx::Plan<'_>) -> Value {
    let edit = |edit: &PlannedEdit| json!({"site": edit.site, "from": edit.from, "to": edit.to});
    json!({
        "edits": planned.edits().iter().map(edit).collect::<Vec<_>>(),
        "inferred": planned.inferred(),
        "max_length": planned.max_length(),
    })
}

/// What a request changes in a model. Nothing is edited yet.
#[pyclass(frozen, module = "posenc_onnx._native")]
pub(crate) struct Plan {
    model: Arc<Model>,
    request: Request,
    /// Taken by the first application; another one plans again.
    made: Mutex<Option<posenc_onnx::Plan<'static>>>,
    /// The plan as a table.
    #[pyo3(get)]
    text: String,
    /// Edits, inferred values and the length, as JSON.
    #[pyo3(get)]
    report: String,
}

#[pymethods]
impl Plan {
    /// Edits a copy of the model and compares the result with the plan and with formulas.
    #[pyo3(signature = (verify, onnxruntime, progress))]
    fn apply(
        &self,
        py: Python<'_>,
        verify: bool,
        onnxruntime: Option<PathBuf>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Rewritten> {
        let made = self
            .made
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let (model, request) = (Arc::clone(&self.model), self.request.clone());
        let search = Search::Python(onnxruntime);
        wait(py, progress, move |stages| {
            let path = model.as_ir().path();
            let apply = || {
                let made = match made {
                    Some(made) => made,
                    None => planned(&model, &request)?,
                };
                stages.begin("apply")?;
                let mut done = made.apply()?;
                stages.begin("check")?;
                let mut report = done.report().clone();
                let proof = if verify {
                    Proof::Required
                } else {
                    Proof::Wanted
                };
                steps::check(&mut done, (proof, &request), &search, &mut report)?;
                report.warnings.extend(steps::absence(
                    path.unwrap_or(Path::new("")),
                    model.as_ir(),
                )?);
                Ok(Rewritten {
                    done,
                    report,
                    request,
                })
            };
            apply().map_err(|error: anyhow::Error| at(path, error))
        })
    }
}

/// A rewritten model, and what was done.
#[pyclass(frozen, module = "posenc_onnx._native")]
pub(crate) struct Rewritten {
    done: posenc_onnx::Rewritten,
    report: Rewrite,
    request: Request,
}

#[pymethods]
impl Rewritten {
    /// The report, as JSON.
    #[getter]
    fn report(&self) -> PyResult<String> {
        json_of(&self.report)
    }

    /// The file that the model was read from.
    #[getter]
    fn path(&self) -> Option<&Path> {
        self.done.as_ir().path()
    }

    /// The bytes of the model's file.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.allow_threads(|| self.done.to_bytes());
        let bytes = bytes.map_err(|error| raise(py, &error.into()))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Writes the model, and its configurations where the request says so. Returns the report with
    /// the file, as JSON.
    ///
    /// Ctrl-C takes effect when the files are complete.
    #[pyo3(signature = (path, external_data, in_place))]
    fn save(
        &self,
        py: Python<'_>,
        path: PathBuf,
        external_data: &str,
        in_place: bool,
    ) -> PyResult<String> {
        let report = py.allow_threads(|| self.write(&path, external_data, in_place));
        json_of(&report.map_err(|error| raise(py, &error))?)
    }

    /// The `config.json` of the model that was read, changed to match the result. Takes and returns
    /// JSON.
    fn config(&self, py: Python<'_>, text: &str) -> PyResult<String> {
        let changed = || -> Result<String> {
            let config = serde_json::from_str(text);
            let config: Value = config.map_err(|why| Failure::usage(why.to_string()))?;
            let change = self.done.config(&config).map_err(RewriteError::from)?;
            Ok(change.value().to_string())
        };
        changed().map_err(|error| raise(py, &error))
    }
}

impl Rewritten {
    fn write(&self, to: &Path, external_data: &str, in_place: bool) -> Result<Rewrite> {
        let mode = external_data.parse::<ExternalData>();
        let mode = mode.map_err(|why| Failure::usage(why.to_string()))?;
        let mut report = self.report.clone();
        let from = self.done.as_ir().path().unwrap_or(Path::new(""));
        output::check(from, to, in_place, &[])?;
        let configs = if self.request.allowances.write_config {
            config::check(from, Some(to), in_place)?;
            Some(config::plan(&self.done, from, to, &[])?)
        } else {
            None
        };
        report
            .warnings
            .extend(steps::save(self.done.as_ir(), from, to, mode)?);
        if let Some(configs) = configs {
            configs.write(to)?;
            report.configs = configs.report();
            report.warnings.extend(configs.warnings.iter().cloned());
        }
        report.output = Some(Endpoint {
            fingerprint: fingerprint_of(to)?,
            path: to.display().to_string(),
        });
        Ok(report)
    }
}

fn json_of(report: &Rewrite) -> PyResult<String> {
    let text = serde_json::to_string(report);
    text.map_err(|why| pyo3::exceptions::PyRuntimeError::new_err(why.to_string()))
}
