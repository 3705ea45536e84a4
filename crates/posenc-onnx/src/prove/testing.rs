//! A backend for tests: the evaluator in f64, which needs no runtime and can return wrong numbers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use posenc_ir::{DType, Model, Tensor, ValueId};
use posenc_runtime::{
    Backend, EvaluatorBackend, Fallback, ModelSource, Options, Port, Provider, RuntimeError,
    Session,
};

use super::run::RuntimeTarget;
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
    /// The runs that fail.
    pub(crate) fails: Option<Chosen>,
    /// The name of a value that is too large by 1.
    pub(crate) spoiled: Option<&'static str>,
    /// The name of a value that it does not take.
    pub(crate) refused: Option<&'static str>,
    /// Models that were loaded so far.
    pub(crate) loads: Arc<AtomicUsize>,
}

impl Evaluator {
    /// Adds the index of each token to its outputs.
    pub(crate) fn adding_places() -> Self {
        Self {
            fault: Some(|y, dims| {
                let width = dims.iter().skip(2).product::<usize>().max(1);
                let place = |i: usize| (i / width) as f64;
                y.iter_mut().enumerate().for_each(|(i, y)| *y += place(i));
            }),
            ..Self::default()
        }
    }

    /// The evaluator as what models are run on.
    pub(crate) fn target(&self) -> RuntimeTarget<'_> {
        RuntimeTarget {
            backend: self,
            provider: Provider::Cpu,
            fallback: Fallback::Allowed,
        }
    }
}

#[derive(Debug)]
struct Loaded {
    session: Box<dyn Session>,
    fault: Option<Fault>,
    only: Option<Chosen>,
    fails: Option<Chosen>,
}

impl Backend for Evaluator {
    fn name(&self) -> &'static str {
        EvaluatorBackend.name()
    }

    fn version(&self) -> String {
        EvaluatorBackend.version()
    }

    fn load(
        &self,
        source: ModelSource<'_>,
        options: &Options,
    ) -> Result<Box<dyn Session>, RuntimeError> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        let failed = |why: String| RuntimeError::failed("evaluator", why);
        let model = match source {
            ModelSource::Bytes { model, .. } => Model::from_bytes(model.to_vec()),
            ModelSource::File(path) => Model::open(path),
        };
        let mut model = model.map_err(|e| failed(e.to_string()))?;
        let value = |model: &Model, name: Option<&str>| {
            let graph = model.graph();
            graph.find(graph.main(), name?)
        };
        if let (Some(_), Some(name)) = (value(&model, self.refused), self.refused) {
            return Err(failed(format!("{name} is refused")));
        }
        if let Some(value) = value(&model, self.spoiled) {
            spoil(&mut model, value);
        }
        let bytes = model.to_bytes().map_err(|e| failed(e.to_string()))?;
        let source = ModelSource::Bytes {
            model: &bytes,
            folder: None,
        };
        Ok(Box::new(Loaded {
            session: EvaluatorBackend.load(source, options)?,
            fault: self.fault,
            only: self.only,
            fails: self.fails,
        }))
    }
}

/// Adds 1 to a value of float32 for everything that reads it.
fn spoil(model: &mut Model, value: ValueId) {
    let graph = model.graph();
    let mut out = graph.emitter(graph.main(), "spoiled");
    let one = out.scalar("one", DType::F32, 1.0);
    let wrong = out.op("Add", &[value, one]);
    out.redirect(value, wrong).unwrap();
    let patch = out.finish();
    model.commit(patch).unwrap();
}

impl Session for Loaded {
    fn inputs(&self) -> &[Port] {
        self.session.inputs()
    }

    fn outputs(&self) -> &[String] {
        self.session.outputs()
    }

    fn run(
        &mut self,
        feeds: &[(&str, Tensor)],
        outputs: &[&str],
    ) -> Result<Vec<(String, Tensor)>, RuntimeError> {
        if self.fails.is_some_and(|is| is(feeds)) {
            return Err(RuntimeError::failed("evaluator", "it was told to"));
        }
        let mut results = self.session.run(feeds, outputs)?;
        let fault = self.fault.filter(|_| self.only.is_none_or(|is| is(feeds)));
        for (_, tensor) in results.iter_mut() {
            let Some(fault) = fault else { continue };
            let (mut data, mut dims) = (tensor.to_f64s().unwrap(), tensor.dims().to_vec());
            fault(&mut data, &mut dims);
            *tensor = Tensor::from_f64(tensor.dtype(), &dims, &data);
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
