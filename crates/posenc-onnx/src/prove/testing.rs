//! A backend for tests: the evaluator in f64, which needs no runtime and can return wrong numbers.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use posenc_ir::eval::{Budget, Value, trace};
use posenc_ir::{Model, Tensor};
use posenc_runtime::{Backend, ModelSource, Options, Port, RuntimeError, Session};
use rustc_hash::FxHashMap;

use crate::request::{LawName, Parameters, Request};

/// Changes an output: its elements and dimensions.
pub(crate) type Fault = fn(&mut Vec<f64>, &mut Vec<usize>);

/// Chooses runs by what is fed.
pub(crate) type Chosen = fn(&[(&str, Tensor)]) -> bool;

/// The evaluator as a runtime.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evaluator {
    /// Changes every output.
    pub(crate) fault: Option<Fault>,
    /// The runs whose outputs are changed; all of them without it.
    pub(crate) only: Option<Chosen>,
    /// The name of a value that is too large by 1.
    pub(crate) spoiled: Option<&'static str>,
    /// The name of a value that it does not take.
    pub(crate) refused: Option<&'static str>,
    /// Models that were loaded so far.
    pub(crate) loads: Rc<Cell<usize>>,
}

#[derive(Debug)]
struct Loaded {
    model: Model,
    ports: Vec<Port>,
    outputs: Vec<String>,
    fault: Option<Fault>,
    only: Option<Chosen>,
    spoiled: Option<&'static str>,
}

impl Backend for Evaluator {
    fn name(&self) -> &'static str {
        "evaluator"
    }

    fn version(&self) -> String {
        "0".to_owned()
    }

    fn load(
        &self,
        source: ModelSource<'_>,
        _options: &Options,
    ) -> Result<Box<dyn Session>, RuntimeError> {
        self.loads.set(self.loads.get() + 1);
        let model = match source {
            ModelSource::Bytes { model, .. } => Model::from_bytes(model.to_vec()),
            ModelSource::File(path) => Model::open(path),
        };
        let model = model.map_err(|e| RuntimeError::failed("evaluator", e.to_string()))?;
        let graph = model.graph();
        if let Some(name) = self.refused
            && graph.find(graph.main(), name).is_some()
        {
            return Err(RuntimeError::failed(
                "evaluator",
                format!("{name} is refused"),
            ));
        }
        let main = graph.scope(graph.main());
        let fed = main.inputs().iter().filter(|v| graph.stored(**v).is_none());
        let port = |v: &posenc_ir::ValueId| Port {
            name: graph.name(*v).to_owned(),
            dtype: graph.dtype(*v),
            dims: None,
        };
        Ok(Box::new(Loaded {
            ports: fed.map(port).collect(),
            outputs: main
                .outputs()
                .iter()
                .map(|v| graph.name(*v).to_owned())
                .collect(),
            fault: self.fault,
            only: self.only,
            spoiled: self.spoiled,
            model,
        }))
    }
}

impl Session for Loaded {
    fn inputs(&self) -> &[Port] {
        &self.ports
    }

    fn outputs(&self) -> &[String] {
        &self.outputs
    }

    fn run(
        &mut self,
        feeds: &[(&str, Tensor)],
        outputs: &[&str],
    ) -> Result<Vec<(String, Tensor)>, RuntimeError> {
        posenc_runtime::feeds::check(&self.ports, feeds)?;
        let graph = self.model.graph();
        let mut seeds = FxHashMap::default();
        for (name, tensor) in feeds {
            let value = graph.find(graph.main(), name).unwrap();
            seeds.insert(value, Value::from_tensor(tensor));
        }
        let budget = Budget { elements: 1 << 24 };
        let mut all = trace(&self.model, &seeds, &|_| false, &budget);
        if let Some(value) = self.spoiled.and_then(|n| graph.find(graph.main(), n)) {
            let right = all.get(value);
            let wrong = Value::float(right.to_f64().unwrap() + 1.0);
            seeds.insert(value, wrong.with_dtype(right.dtype.unwrap()));
            all = trace(&self.model, &seeds, &|_| false, &budget);
        }
        let mut results = vec![];
        for name in &self.outputs {
            if !outputs.is_empty() && !outputs.contains(&name.as_str()) {
                continue;
            }
            let value = all.get(graph.find(graph.main(), name).unwrap());
            let unknown = || RuntimeError::failed("evaluator", format!("{name} is unknown"));
            let data = value.to_f64().ok_or_else(unknown)?;
            let mut dims = data.shape().to_vec();
            let mut data: Vec<f64> = data.iter().copied().collect();
            if let Some(fault) = self.fault.filter(|_| self.only.is_none_or(|is| is(feeds))) {
                fault(&mut data, &mut dims);
            }
            let dtype = value.dtype.ok_or_else(unknown)?;
            results.push((name.clone(), Tensor::from_f64(dtype, &dims, &data)));
        }
        Ok(results)
    }

    fn placement(&mut self) -> BTreeMap<String, usize> {
        BTreeMap::new()
    }
}

/// A rescale from 64 tokens to `factor` times as many.
pub(crate) fn rescaled_by(law: LawName, factor: f64) -> Request {
    Request {
        scale: Some(law.into()),
        parameters: Parameters {
            factor: Some(factor),
            original_length: Some(64),
            ..Parameters::default()
        },
        ..Request::default()
    }
}

/// An export of the fixtures.
pub(crate) fn fixture(name: &str) -> Model {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    Model::open(root.join(name).join("model.onnx")).unwrap()
}
