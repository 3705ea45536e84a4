//! Values of a model, computed from other values by the evaluator or by a runtime.

use ndarray::{ArrayD, IxDyn};
use posenc_ir::eval::{Budget, Trace, Value, probe};
use posenc_ir::{CutInput, Dim, Model, Tensor, ValueId};
use posenc_runtime::{Backend, ModelSource, Options};
use rustc_hash::FxHashMap;

use crate::prove::VerifyError;
use crate::prove::trial::feed;

/// The most elements of a value.
pub(crate) const BUDGET: Budget = Budget { elements: 1 << 22 };

/// The most bytes that the constants of a cut-out part may take.
const CONSTANTS: usize = 1 << 28;

/// Computes values of a model from others that are given.
pub(crate) trait Compute {
    fn compute(
        &self,
        run: &TrialRun<'_>,
        given: &[(ValueId, Tensor)],
        wanted: ValueId,
    ) -> Result<ArrayD<f64>, VerifyError>;
}

/// A trial run of a model, for the checks of one site.
pub(crate) struct TrialRun<'a> {
    pub(crate) site: &'a str,
    pub(crate) model: &'a Model,
    pub(crate) trace: &'a Trace,
    pub(crate) seeds: &'a FxHashMap<ValueId, Value>,
}

/// The evaluator, in f64.
pub(crate) struct Evaluator;

impl Compute for Evaluator {
    fn compute(
        &self,
        run: &TrialRun<'_>,
        given: &[(ValueId, Tensor)],
        wanted: ValueId,
    ) -> Result<ArrayD<f64>, VerifyError> {
        let seeds = given
            .iter()
            .map(|(v, t)| (*v, Value::from_tensor(t)))
            .collect();
        let values = probe(run.model, run.trace, &seeds, &[wanted], &BUDGET);
        let values = values.ok().and_then(|v| v.first()?.to_f64());
        values.ok_or_else(|| VerifyError::unsupported(run.site, "cannot evaluate the scores"))
    }
}

/// A runtime.
pub(crate) struct Runtime<'a>(pub(crate) &'a dyn Backend);

impl Compute for Runtime<'_> {
    fn compute(
        &self,
        run: &TrialRun<'_>,
        given: &[(ValueId, Tensor)],
        wanted: ValueId,
    ) -> Result<ArrayD<f64>, VerifyError> {
        let input = |(value, tensor): &(ValueId, Tensor)| CutInput {
            value: *value,
            dtype: tensor.dtype(),
            dims: tensor.dims().iter().map(|d| Dim::Known(*d)).collect(),
        };
        let inputs: Vec<CutInput> = given.iter().map(input).collect();
        let cut = run.model.cut(&inputs, &[wanted], CONSTANTS)?;
        let graph = run.model.graph();
        let mut feeds: Vec<(String, Tensor)> = vec![];
        for (value, tensor) in given {
            feeds.push((graph.name(*value).to_owned(), tensor.clone()));
        }
        for port in &cut.inputs[given.len()..] {
            let known = run.seeds.get(&port.value).and_then(feed);
            let known = known.ok_or_else(|| {
                let why = format!("no values are known for the input {}", port.name);
                VerifyError::unsupported(run.site, why)
            })?;
            feeds.push((port.name.clone(), known));
        }
        let source = ModelSource::Bytes {
            model: &cut.bytes,
            folder: None,
        };
        let failed = |e| VerifyError::runtime(run.site, e);
        let mut session = self.0.load(source, &Options::default()).map_err(failed)?;
        let feeds: Vec<(&str, Tensor)> =
            feeds.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        let outputs = session.run(&feeds, &[]).map_err(failed)?;
        let first = outputs.into_iter().next().map(|(_, tensor)| tensor);
        let numbers = first.as_ref().and_then(array);
        numbers.ok_or_else(|| VerifyError::unsupported(run.site, "the runtime returned no numbers"))
    }
}

/// The numbers of a tensor.
pub(crate) fn array(tensor: &Tensor) -> Option<ArrayD<f64>> {
    ArrayD::from_shape_vec(IxDyn(tensor.dims()), tensor.to_f64s()?).ok()
}
