//! Evaluations with a small budget do not panic and compute no more elements than allowed.

use posenc_ir::eval::{Budget, Trace, Value, probe, trace};
use posenc_ir::{Dim, Model, ValueId};
use rustc_hash::FxHashMap;

/// Elements of one value.
const BUDGET: Budget = Budget { elements: 1 << 14 };

/// Evaluates the model with unknown inputs and with ones, and parts of it again.
///
/// # Panics
/// When a computed value has more elements than the budget allows.
pub fn evaluate(data: &[u8]) {
    let Ok(model) = Model::from_bytes(data.to_vec()) else {
        return;
    };
    let unknown = trace(&model, &FxHashMap::default(), &|_| false, &BUDGET);
    check(&model, &unknown);
    let seeds = seeds(&model);
    let fed = trace(&model, &seeds, &|v| v.index() % 13 == 5, &BUDGET);
    check(&model, &fed);
    let graph = model.graph();
    let outputs = graph.scope(graph.main()).outputs();
    for target in outputs.iter().take(4) {
        let _ = probe(&model, &unknown, &seeds, &[*target], &BUDGET);
    }
}

/// Ones of the declared shapes, with 3 for dimensions that are not declared.
fn seeds(model: &Model) -> FxHashMap<ValueId, Value> {
    let graph = model.graph();
    let mut seeds = FxHashMap::default();
    for input in graph.scope(graph.main()).inputs() {
        let value = graph.value(*input);
        let (Some(dtype), Some(shape)) = (graph.dtype(*input), value.shape()) else {
            continue;
        };
        let length = |d: &Dim| match d {
            Dim::Known(n) => *n,
            Dim::Symbol(_) | Dim::Unknown => 3,
        };
        let dims: Vec<usize> = shape.iter().map(length).collect();
        if !BUDGET.allows(&dims) {
            continue;
        }
        let count = dims.iter().product();
        let tensor = match dtype {
            posenc_ir::DType::Bool => posenc_ir::Tensor::from_bool(&dims, &vec![true; count]),
            d if d.is_float() => posenc_ir::Tensor::from_f32(&dims, &vec![1.0; count]),
            _ => posenc_ir::Tensor::from_i64(&dims, &vec![1; count]),
        };
        seeds.insert(*input, Value::from_tensor(&tensor).with_dtype(dtype));
    }
    seeds
}

fn check(model: &Model, trace: &Trace) {
    let graph = model.graph();
    for id in graph.values() {
        let value = trace.get(id);
        if value.data.is_some() && graph.stored(id).is_none() {
            let count = value.elements().expect("data has dimensions");
            assert!(count <= BUDGET.elements, "{count} elements");
        }
    }
}
