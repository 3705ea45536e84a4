//! A model loaded by ONNX Runtime.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ort::session::{OutputSelector, RunOptions, Session as OrtSession, SessionInputValue};
use ort::value::DynValue;
use posenc_ir::Tensor;

use super::error::{NAME, failed};
use super::placement::Recorder;
use super::value;
use crate::backend::{Port, Session};
use crate::error::{Result, RuntimeError};
use crate::feeds;

#[derive(Debug)]
pub(super) struct OrtRun {
    inputs: Vec<Port>,
    outputs: Vec<String>,
    session: OrtSession,
    recorder: Option<Recorder>,
}

impl OrtRun {
    pub(super) fn new(session: OrtSession, recorder: Option<Recorder>) -> Self {
        let inputs = session.inputs().iter();
        let outputs = session.outputs().iter();
        Self {
            inputs: inputs.map(|i| value::port(i.name(), i.dtype())).collect(),
            outputs: outputs.map(|o| o.name().to_owned()).collect(),
            session,
            recorder,
        }
    }
}

impl Session for OrtRun {
    fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    fn outputs(&self) -> &[String] {
        &self.outputs
    }

    fn run(&mut self, feeds: &[(&str, Tensor)], outputs: &[&str]) -> Result<Vec<(String, Tensor)>> {
        let sorted = feeds::check(&self.inputs, feeds)?;
        // An output that is an input shares its memory, so that inputs live until outputs are read.
        let ports = self.inputs.iter().zip(sorted);
        let held: Vec<DynValue> = ports
            .map(|(port, tensor)| value::feed(&port.name, tensor))
            .collect::<Result<_>>()?;
        let values: Vec<(Cow<'_, str>, SessionInputValue<'_>)> = (self.inputs.iter().zip(&held))
            .map(|(port, value)| (port.name.as_str().into(), value.into()))
            .collect();
        let requested = requested(&self.outputs, outputs)?;
        let mut selector = OutputSelector::no_default();
        for name in &requested {
            selector = selector.with(name);
        }
        let options = RunOptions::new().map_err(failed)?.with_outputs(selector);
        let results = self
            .session
            .run_with_options(values, &options)
            .map_err(failed)?;
        requested
            .into_iter()
            .map(|name| {
                let missing = || RuntimeError::failed(NAME, format!("it gave no output {name}"));
                let result = results.get(&name).ok_or_else(missing)?;
                let tensor = value::output(&name, result)?;
                Ok((name, tensor))
            })
            .collect()
    }

    fn placement(&mut self) -> BTreeMap<String, usize> {
        self.recorder
            .as_mut()
            .map(|recorder| recorder.counts(&mut self.session))
            .unwrap_or_default()
    }
}

/// The names, each of which must be known; all known ones where `names` is empty.
fn requested(known: &[String], names: &[&str]) -> Result<Vec<String>> {
    if names.is_empty() {
        return Ok(known.to_vec());
    }
    let unknown = |name: &&&str| !known.iter().any(|k| k == **name);
    match names.iter().find(unknown) {
        Some(name) => Err(RuntimeError::output(*name, known)),
        None => Ok(names.iter().map(|name| (*name).to_owned()).collect()),
    }
}
