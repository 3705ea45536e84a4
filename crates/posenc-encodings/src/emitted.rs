//! What emitted nodes compute, for tests.

use ndarray::{Array3, ArrayD, Ix3};
use posenc_ir::eval::{Budget, probe, trace};
use posenc_ir::{DType, Emitter, Graph, Model, Tensor, ValueId};
use rustc_hash::FxHashMap;

use crate::bias::{At, BiasPorts, Order, Run, ScoreBias};
use crate::opset::Opset;
use crate::samples::Scores;

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
    let wanted = [output(model.graph())];
    // Large values are computed on demand.
    let made = probe(&model, &run, &FxHashMap::default(), &wanted, &budget).ok();
    made.and_then(|values| values.first()?.to_f64())
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

/// Queries after `past` keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tokens {
    pub(crate) queries: usize,
    pub(crate) past: usize,
    /// Whether later keys are hidden.
    pub(crate) causal: bool,
}

impl Tokens {
    pub(crate) fn causal(queries: usize) -> Self {
        let (past, causal) = (0, true);
        Self {
            queries,
            past,
            causal,
        }
    }

    fn at(self, query: usize, key: usize) -> At {
        At {
            query: (query + self.past) as i64,
            key: key as i64,
            keys: self.queries + self.past,
        }
    }

    /// A run with these numbers.
    pub(crate) fn run(self, mut number: impl FnMut(usize, At) -> f64) -> Run {
        let keys = self.queries + self.past;
        let values = Array3::from_shape_fn((2, self.queries, keys), |(h, i, j)| {
            let at = self.at(i, j);
            if self.causal && at.distance() > 0 {
                f64::NEG_INFINITY
            } else {
                number(h, at)
            }
        });
        Run::of(Scores {
            values,
            origin: self.past as i64,
            tolerance: 1e-6,
            has_sink: false,
        })
    }

    /// The run of a bias of two heads, by its formula.
    pub(crate) fn of(self, bias: &dyn ScoreBias, tensors: &[ArrayD<f64>]) -> Run {
        self.run(|head, at| bias.reference(tensors, head, at).value)
    }

    /// The same as the emitted nodes compute it.
    pub(crate) fn emitted(self, opset: i64, bias: &dyn ScoreBias, tensors: &[ArrayD<f64>]) -> Run {
        let keys = self.queries + self.past;
        let numbers = emitted(opset, &[], |out, _| {
            let mut ports = Constants {
                tokens: self,
                opset: Opset(opset),
            };
            let made = bias.emit(out, &mut ports, tensors).expect("a formula");
            match made.order {
                Order::HeadsFirst => made.value,
                Order::HeadsLast => {
                    let perm = [("perm", posenc_ir::Attr::Ints(vec![2, 0, 1]))];
                    out.op_with("Transpose", &[made.value], &perm)
                }
            }
        });
        let numbers = numbers.into_dimensionality::<Ix3>().expect("three axes");
        assert_eq!(numbers.dim(), (2, self.queries, keys));
        self.run(|head, at| numbers[[head, at.query as usize - self.past, at.key as usize]])
    }
}

/// Distances and positions as constants, for two heads in f32.
struct Constants {
    tokens: Tokens,
    opset: Opset,
}

impl BiasPorts for Constants {
    fn opset(&self) -> Opset {
        self.opset
    }

    fn dtype(&self) -> DType {
        DType::F32
    }

    fn heads(&self) -> &[usize] {
        &[2]
    }

    fn is_by_sequence(&self) -> bool {
        false
    }

    fn distances(&mut self, out: &mut Emitter<'_>) -> ValueId {
        let tokens = self.tokens;
        let keys = tokens.queries + tokens.past;
        let rows = 0..tokens.queries;
        let all = rows.flat_map(|i| (0..keys).map(move |j| tokens.at(i, j).distance()));
        let all: Vec<i64> = all.collect();
        out.constant("distances", Tensor::from_i64(&[tokens.queries, keys], &all))
    }

    fn queries(&mut self, out: &mut Emitter<'_>) -> ValueId {
        let tokens = self.tokens;
        let all: Vec<i64> = (0..tokens.queries)
            .map(|i| (i + tokens.past) as i64)
            .collect();
        out.constant("queries", Tensor::from_i64(&[tokens.queries, 1], &all))
    }

    fn constant(&mut self, out: &mut Emitter<'_>, label: &str, tensor: Tensor) -> ValueId {
        out.constant(label, tensor)
    }
}
