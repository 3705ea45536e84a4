//! The evaluator of `posenc-ir` as a runtime: floats of every type are computed in f64, on one thread,
//! with nothing installed. It shows that a graph says what its formula says; how a runtime rounds, it
//! does not show.

use std::collections::BTreeMap;

use posenc_ir::eval::{Budget, Value, trace};
use posenc_ir::{Model, Tensor, ValueId};
use rustc_hash::FxHashMap;

use crate::backend::{Backend, ModelSource, Options, Port, Session};
use crate::error::{Result, RuntimeError};
use crate::feeds;

const NAME: &str = "evaluator";

/// The most elements of a tensor: 128 MiB in f64.
const ELEMENTS: usize = 1 << 24;

/// The evaluator.
#[derive(Clone, Copy, Debug, Default)]
pub struct EvaluatorBackend;

impl Backend for EvaluatorBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    fn load(&self, model: ModelSource<'_>, _: &Options) -> Result<Box<dyn Session>> {
        let model = match model {
            ModelSource::Bytes { model, .. } => Model::from_bytes(model.to_vec()),
            ModelSource::File(path) => Model::open(path),
        };
        let model = model.map_err(|e| RuntimeError::unsupported(NAME, e.to_string()))?;
        let graph = model.graph();
        let main = graph.scope(graph.main());
        let name = |value: &ValueId| graph.name(*value).to_owned();
        let fed = main.inputs().iter().filter(|v| graph.stored(**v).is_none());
        let port = |value: &ValueId| Port {
            name: name(value),
            dtype: graph.dtype(*value),
            dims: None,
        };
        Ok(Box::new(Loaded {
            ports: fed.map(port).collect(),
            outputs: main.outputs().iter().map(name).collect(),
            model,
        }))
    }
}

#[derive(Debug)]
struct Loaded {
    model: Model,
    ports: Vec<Port>,
    outputs: Vec<String>,
}

impl Session for Loaded {
    fn inputs(&self) -> &[Port] {
        &self.ports
    }

    fn outputs(&self) -> &[String] {
        &self.outputs
    }

    fn run(&mut self, feeds: &[(&str, Tensor)], outputs: &[&str]) -> Result<Vec<(String, Tensor)>> {
        let wanted: Vec<&str> = match outputs.is_empty() {
            true => self.outputs.iter().map(String::as_str).collect(),
            false => outputs.to_vec(),
        };
        let fed = feeds::check(&self.ports, feeds)?;
        let graph = self.model.graph();
        let seeds: FxHashMap<ValueId, Value> = (self.ports.iter().zip(fed))
            .filter_map(|(port, tensor)| {
                let value = graph.find(graph.main(), &port.name)?;
                Some((value, Value::from_tensor(tensor)))
            })
            .collect();
        let budget = Budget { elements: ELEMENTS };
        let all = trace(&self.model, &seeds, &|_| false, &budget);
        let result = |name: &str| {
            let known = self.outputs.iter().any(|output| output == name);
            let value = known.then(|| graph.find(graph.main(), name)).flatten();
            let value = value.ok_or_else(|| RuntimeError::output(name, &self.outputs))?;
            let value = all.get(value);
            let computed = value.dtype.zip(value.to_f64()).ok_or_else(|| {
                RuntimeError::unsupported(NAME, format!("it cannot compute {name}"))
            });
            let (dtype, numbers) = computed?;
            let elements: Vec<f64> = numbers.iter().copied().collect();
            let tensor = Tensor::from_f64(dtype, numbers.shape(), &elements);
            Ok((name.to_owned(), tensor))
        };
        wanted.into_iter().map(result).collect()
    }

    fn placement(&mut self) -> BTreeMap<String, usize> {
        BTreeMap::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: &str = r#"<ir_version: 8, opset_import: ["" : 17]>
g (float[n] x) => (float[n] twice, float[n] odd) {
  twice = Add(x, x)
  odd = Unheard(x)
}"#;

    fn session() -> Box<dyn Session> {
        let model = Model::parse(MODEL).unwrap();
        let model = model.to_bytes().unwrap();
        let source = ModelSource::Bytes {
            model: &model,
            folder: None,
        };
        let loaded = EvaluatorBackend.load(source, &Options::default());
        loaded.unwrap()
    }

    #[test]
    fn what_it_knows_is_computed_and_the_rest_is_refused_by_name() {
        let mut session = session();
        let x = Tensor::from_f32(&[2], &[1.5, -2.0]);
        let feeds = [("x", x)];
        let twice = session.run(&feeds, &["twice"]).unwrap();
        assert_eq!(twice[0].1.to_f64s(), Some(vec![3.0, -4.0]));
        for (outputs, why) in [
            (
                &["odd"][..],
                "evaluator cannot run this model: it cannot compute odd",
            ),
            (
                &[],
                "evaluator cannot run this model: it cannot compute odd",
            ),
            (&["x"], "the model has no output x; it has twice, odd"),
        ] {
            let error = session.run(&feeds, outputs).unwrap_err();
            assert_eq!(error.to_string(), why);
        }
        let error = session.run(&[], &[]).unwrap_err();
        assert_eq!(error.to_string(), "input x: it is missing");
    }
}
