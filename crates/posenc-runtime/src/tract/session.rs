//! A model loaded by tract.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use posenc_ir::{DType, Tensor};
use tract_onnx::model::ParseResult;
use tract_onnx::pb::ModelProto;
use tract_onnx::prelude::{
    DatumType, InferenceFact, InferenceModel, InferenceModelExt, IntoRunnable, IntoTValue,
    OutletId, TValue, TVec, TractResult, TypedRunnableModel,
};
use tract_onnx::tract_core::plan::eval;
use tract_onnx::tract_hir::infer::GenericFactoid;

use super::error::{NAME, failed, refused};
use super::guard::guarded;
use super::registers::clear_upper_halves;
use super::{refuse, value};
use crate::backend::{Port, Session};
use crate::error::{Result, RuntimeError};
use crate::feeds;

/// The most plans that a session keeps.
const PLANS: usize = 8;

/// Identifies a plan: the shapes of the feeds in the order of the inputs, and the indices of outputs.
type Key = (Vec<Vec<usize>>, Vec<usize>);

pub(super) struct TractRun {
    inputs: Vec<Port>,
    outputs: Vec<String>,
    model: InferenceModel,
    outlets: Vec<OutletId>,
    /// Values that must have rank 2; see [`refuse::position_inputs`].
    positions: Vec<OutletId>,
    plans: Vec<(Key, Arc<TypedRunnableModel>)>,
}

impl fmt::Debug for TractRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TractRun")
            .field("inputs", &self.inputs)
            .field("outputs", &self.outputs)
            .finish_non_exhaustive()
    }
}

impl TractRun {
    pub(super) fn new(proto: &ModelProto, parsed: ParseResult) -> Result<Self> {
        let graph = proto.graph.as_ref();
        let positions = refuse::position_inputs(proto);
        let positions = positions
            .iter()
            .filter_map(|name| parsed.outlets_by_name.get(name));
        let positions = positions.copied().collect();
        let model = parsed.model;
        let outlets = model.output_outlets();
        let outlets = outlets.map_err(|e| refused(&e))?;
        Ok(Self {
            inputs: graph.map(value::ports).unwrap_or_default(),
            outputs: graph
                .map(|graph| graph.output.iter().map(|o| o.name.clone()).collect())
                .unwrap_or_default(),
            outlets: outlets.to_vec(),
            positions,
            model,
            plans: Vec::new(),
        })
    }

    /// The plan for these shapes and outputs, built unless it is kept.
    fn plan(&mut self, key: Key, types: &[DatumType]) -> Result<Arc<TypedRunnableModel>> {
        if let Some((_, plan)) = self.plans.iter().find(|(known, _)| *known == key) {
            return Ok(plan.clone());
        }
        let model = guarded(|| self.concrete(&key, types).map_err(|e| refused(&e)))?;
        for positions in &self.positions {
            let fact = model.outlet_fact(*positions).map_err(|e| refused(&e))?;
            if fact.shape.rank() != GenericFactoid::Only(2) {
                let why =
                    "it supports com.microsoft.RotaryEmbedding only with one position a token";
                return Err(RuntimeError::unsupported(NAME, why));
            }
        }
        // The un-optimized model is no fallback: it can be silently wrong.
        let optimized = || model.into_optimized()?.into_runnable();
        let plan = guarded(|| optimized().map_err(|e| refused(&e)))?;
        if self.plans.len() == PLANS {
            self.plans.remove(0);
        }
        self.plans.push((key, plan.clone()));
        Ok(plan)
    }

    /// The model with these input shapes and only these outputs.
    fn concrete(&self, key: &Key, types: &[DatumType]) -> TractResult<InferenceModel> {
        let mut model = self.model.clone();
        for (i, (dtype, shape)) in types.iter().zip(&key.0).enumerate() {
            model.set_input_fact(i, InferenceFact::dt_shape(*dtype, shape))?;
        }
        let outlets: Vec<OutletId> = key.1.iter().map(|i| self.outlets[*i]).collect();
        model.select_output_outlets(&outlets)?;
        if !self.positions.is_empty() {
            model.analyse(false)?;
        }
        Ok(model)
    }

    /// The indices of the named outputs; all of them where `names` is empty.
    fn indices(&self, names: &[&str]) -> Result<Vec<usize>> {
        if names.is_empty() {
            return Ok((0..self.outputs.len()).collect());
        }
        let index = |name: &&str| self.outputs.iter().position(|known| known == name);
        names
            .iter()
            .map(|name| index(name).ok_or_else(|| RuntimeError::output(*name, &self.outputs)))
            .collect()
    }
}

impl Session for TractRun {
    fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    fn outputs(&self) -> &[String] {
        &self.outputs
    }

    fn run(&mut self, feeds: &[(&str, Tensor)], outputs: &[&str]) -> Result<Vec<(String, Tensor)>> {
        let sorted = feeds::check(&self.inputs, feeds)?;
        let requested = self.indices(outputs)?;
        let mut values: TVec<TValue> = TVec::new();
        let mut types = Vec::new();
        let mut shapes = Vec::new();
        for (port, tensor) in self.inputs.iter().zip(sorted) {
            values.push(value::feed(&port.name, tensor)?.into_tvalue());
            types.push(datum_type(&port.name, tensor.dtype())?);
            shapes.push(tensor.dims().to_vec());
        }
        let plan = self.plan((shapes, requested.clone()), &types)?;
        let results = guarded(|| {
            let mut state = plan.spawn().map_err(|e| failed(&e))?;
            let results = state.run_plan_with_eval(values, |context, state, node, inputs| {
                let results = eval(context, state, node, inputs);
                clear_upper_halves();
                results
            });
            results.map_err(|e| failed(&e))
        })?;
        if results.len() != requested.len() {
            return Err(RuntimeError::failed(
                NAME,
                "it gave another number of outputs",
            ));
        }
        requested
            .iter()
            .zip(results)
            .map(|(i, result)| {
                let name = self.outputs[*i].clone();
                let tensor = value::output(&name, &result)?;
                Ok((name, tensor))
            })
            .collect()
    }

    fn placement(&mut self) -> BTreeMap<String, usize> {
        BTreeMap::new()
    }
}

fn datum_type(name: &str, dtype: DType) -> Result<DatumType> {
    let refused = || RuntimeError::feed(name, format!("{NAME} does not accept {dtype}"));
    value::datum_type(dtype).ok_or_else(refused)
}
