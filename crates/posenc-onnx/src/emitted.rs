//! What nodes compute that are recorded for a patch, for tests.

use ndarray::ArrayD;
use posenc_ir::eval::{Budget, trace};
use posenc_ir::{Emitter, Tensor, ValueId};
use rustc_hash::FxHashMap;

use crate::sketch::Sketch;

/// The numbers that `build` computes from constants, in a model of this version of ai.onnx.
pub(crate) fn emitted(
    opset: i64,
    given: &[Tensor],
    build: impl FnOnce(&mut Emitter<'_>, &[ValueId]) -> ValueId,
) -> ArrayD<f64> {
    let mut s = Sketch::default();
    let ids = s.input("input_ids", posenc_ir::DType::I64, &["batch"]);
    let y = s.op("Identity", &[&ids]);
    let mut model = s.model(opset, &[&y]);
    let graph = model.graph();
    let output = graph.scope(graph.main()).outputs()[0];
    let mut out = graph.emitter(graph.main(), "test");
    let given: Vec<ValueId> = given
        .iter()
        .map(|t| out.constant("given", t.clone()))
        .collect();
    let made = build(&mut out, &given);
    let name = out.op("Identity", &[made]);
    out.redirect(output, name).unwrap();
    let patch = out.finish();
    model.commit(patch).unwrap();
    model.check().unwrap();
    let graph = model.graph();
    let output = graph.scope(graph.main()).outputs()[0];
    let budget = Budget { elements: 1 << 20 };
    let run = trace(&model, &FxHashMap::default(), &|_| false, &budget);
    run.get(output).to_f64().expect("everything is known")
}

/// The largest difference.
pub(crate) fn apart<'a>(
    got: impl IntoIterator<Item = &'a f64>,
    want: impl IntoIterator<Item = &'a f64>,
) -> f64 {
    let (mut got, mut want) = (got.into_iter(), want.into_iter());
    let pairs = std::iter::zip(got.by_ref(), want.by_ref());
    let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    match (got.next(), want.next()) {
        (None, None) => worst,
        _ => f64::INFINITY,
    }
}
