//! `inspect` and `table`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use posenc_cli::steps::{self, Failure, Wanted, keywords};
use posenc_onnx::RewriteError;
use posenc_onnx::request::InputRole;
use posenc_onnx::request::hf_config::HfConfig;
use pyo3::prelude::*;

use crate::errors::{at, raise};
use crate::models::Source;
use crate::work::wait;

/// A text, with the name that errors show.
pub(crate) type Named = (String, String);

/// The report of `inspect`, as JSON.
#[pyfunction]
#[pyo3(signature = (model, hf_config, input_role, hash, explain, progress))]
pub(crate) fn inspect(
    py: Python<'_>,
    model: Source,
    hf_config: Option<Named>,
    input_role: &str,
    hash: bool,
    explain: bool,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    let roles = roles(input_role).map_err(|error| raise(py, &error))?;
    wait(py, progress, move |stages| {
        stages.begin("read")?;
        let path = model.path().map(Path::to_owned);
        let model = model.open()?;
        let model = model.with_input_roles(roles).map_err(RewriteError::from);
        let model = model.map_err(|error| at(path.as_deref(), error))?;
        stages.begin("inspect")?;
        let mut report = steps::inspect(&model)?;
        if hash {
            report.model.sha256 = Some(model.as_ir().sha256());
        }
        if let Some((name, text)) = hf_config {
            let consulted = HfConfig::parse(&text)
                .map_err(anyhow::Error::from)
                .and_then(|config| Ok(report.consult(&config)?));
            consulted.context(name)?;
        }
        if !explain {
            report.refused = None;
        }
        Ok(serde_json::to_string(&report)?)
    })
}

/// The roles of inputs, from a JSON object.
fn roles(text: &str) -> Result<BTreeMap<String, InputRole>> {
    let roles = serde_json::from_str(text);
    Ok(roles.map_err(|why| Failure::usage(format!("`input-role`: {why}")))?)
}

/// The frequencies of a scaling, as JSON.
#[pyfunction]
#[pyo3(signature = (options, head_dim, length, hf_config, layer))]
pub(crate) fn table(
    py: Python<'_>,
    options: &str,
    head_dim: Option<usize>,
    length: Option<usize>,
    hf_config: Option<Named>,
    layer: usize,
) -> PyResult<String> {
    let make = || {
        let request = keywords::request(options)?;
        let is_twice = request.scale.is_some()
            || request.parameters.factor.is_some()
            || request.parameters.theta.is_some();
        if is_twice && hf_config.is_some() {
            let why = "`hf-config` gives `scale`, `factor` and `theta`; leave these out";
            return Err(Failure::usage(why).into());
        }
        let wanted = Wanted {
            scale: request.scale,
            given: request.parameters,
            head_dim,
            length,
        };
        let table = match hf_config {
            Some((name, text)) => wanted.of_config(&text, layer).context(name)?,
            None => wanted.table()?,
        };
        Ok(table.json().to_string())
    };
    py.allow_threads(make).map_err(|error| raise(py, &error))
}
