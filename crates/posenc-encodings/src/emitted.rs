//! What emitted nodes compute, for tests.

use ndarray::ArrayD;
use posenc_ir::eval::{Budget, trace};
use posenc_ir::{Emitter, Graph, Model, Tensor, ValueId};
use rustc_hash::FxHashMap;

/// An empty model of this version of ai.onnx: its only output is a copy of its only input.
pub(crate) fn empty(opset: i64) -> Model {
    let text = format!(
        "<ir_version: 8, opset_import: [\"\" : {opset}]>\n\
         test (int64[batch] x) => (int64[batch] y) {{\n    y = Identity(x)\n}}\n"
    );
    Model::parse(&text).expect("the text is valid")
}

/// The numbers that `build` computes from constants, in a model of this version of ai.onnx.
pub(crate) fn emitted(
    opset: i64,
    given: &[Tensor],
    build: impl FnOnce(&mut Emitter<'_>, &[ValueId]) -> ValueId,
) -> ArrayD<f64> {
    let mut model = empty(opset);
    let graph = model.graph();
    let mut out = graph.emitter(graph.main(), "test");
    let given: Vec<ValueId> = given
        .iter()
        .map(|t| out.constant("given", t.clone()))
        .collect();
    let made = build(&mut out, &given);
    let result = out.op("Identity", &[made]);
    out.redirect(output(graph), result)
        .expect("the output exists");
    let patch = out.finish();
    model.commit(patch).expect("the patch applies");
    model.check().expect("the model stays valid");
    let budget = Budget { elements: 1 << 20 };
    let run = trace(&model, &FxHashMap::default(), &|_| false, &budget);
    run.get(output(model.graph()))
        .to_f64()
        .expect("everything is known")
}

fn output(graph: &Graph) -> ValueId {
    graph.scope(graph.main()).outputs()[0]
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
