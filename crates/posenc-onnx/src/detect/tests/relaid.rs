//! Rotations with other pairs of features, and weights that follow them.

use posenc_encodings::kind::Layout;

use super::*;
use crate::detect::context::Context;
use crate::prove::respelled;
use crate::prove::testing::{Evaluator, fixture};
use crate::request::Request;
use crate::rewrite::{Rewritten, rewrite};

/// The same model with rotations of another layout, or why not.
fn relaid(model: &Model, layout: Layout) -> Result<(Model, Rewritten), String> {
    let mut request = Request::default();
    request.parameters.layout = Some(layout);
    let mut model = model.clone();
    let done = rewrite(&mut model, &request).map_err(|why| why.to_string())?;
    Ok((model, done))
}

/// What the models before and after compute differently.
fn differences(done: &Rewritten) -> Vec<String> {
    let mut wrong = vec![];
    if done.respelled.is_empty() {
        wrong.push("nothing to compare".to_owned());
    }
    for pair in &done.respelled {
        let of = Context {
            model: &pair.of,
            found: &pair.found,
        };
        let models = pair.models.each_ref();
        let checks = respelled::check(models, &of, &pair.moved, &Evaluator::default());
        let checks = match checks {
            Ok(checks) => checks,
            Err(why) => {
                wrong.push(why.to_string());
                continue;
            }
        };
        if checks.is_empty() {
            wrong.push("no output was compared".to_owned());
        }
        let failed = checks.into_iter().filter(|check| !check.ok);
        wrong.extend(failed.map(|check| format!("{check:?}")));
    }
    wrong
}

/// Operators that the evaluator does not run. `tests/layout.rs` compares them in ONNX Runtime.
const NOT_RUN: [&str; 2] = ["the standard operator", "the operator of com.microsoft"];

#[test]
fn rope_gets_the_other_layout_however_it_is_written() {
    let mut wrong = vec![];
    for case in accepted::cases() {
        let (_, done) = match relaid(&model(&case.form), case.layout.other()) {
            Ok(made) => made,
            Err(why) => {
                wrong.push((case.name, why));
                continue;
            }
        };
        let sides = done
            .found
            .rotary
            .iter()
            .flat_map(|site| [&site.query, &site.key]);
        let mut layouts = sides.map(|side| side.rotation.rope.layout);
        if !layouts.all(|layout| layout == Some(case.layout.other())) {
            wrong.push((case.name, "keeps its layout".to_owned()));
        }
        let far = differences(&done).into_iter();
        let is_run =
            |far: &String| !(NOT_RUN.contains(&case.name) && far.contains("cannot compute"));
        wrong.extend(far.filter(is_run).map(|far| (case.name, far)));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Queries `[batch, heads, sequence, size]` of the residual stream, before they are rotated.
type Query = fn(&mut Sketch, &str) -> String;

/// Attention whose queries come from `query` and are rotated in halves; keys are plain.
fn projected(query: Query) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let q = query(&mut s, &x);
    let q = halves(&mut s, &q);
    let k = s.headed(&x);
    let k = halves(&mut s, &k);
    let v = s.headed(&x);
    let y = s.weighted(&q, &k, &v);
    let w = s.weights(&[HIDDEN, HIDDEN]);
    let y = s.op("MatMul", &[&y, &w]);
    s.model(21, &[&y])
}

const N: i64 = HEADS as i64;
const D: i64 = SIZE as i64;

fn heads(s: &mut Sketch, y: &str) -> String {
    let y = s.reshape(y, &[0, 0, N, D]);
    s.transpose(&y, &[0, 2, 1, 3])
}

fn product(s: &mut Sketch, x: &str) -> String {
    let w = s.weights(&[HIDDEN, HIDDEN]);
    s.op("MatMul", &[x, &w])
}

#[test]
fn weights_follow_however_queries_are_computed() {
    let ways: [(&str, Query); 14] = [
        ("behind a part of the tokens", |s, x| {
            let y = product(s, x);
            let shape = s.op("Shape", &[x]);
            let one = s.int(1);
            let length = s.gather(&shape, &one, 0);
            let length = s.unsqueeze(&length, &[0]);
            let (zero, axes) = (s.ints(&[0]), s.ints(&[1]));
            let y = s.op("Slice", &[&y, &zero, &length, &axes]);
            heads(s, &y)
        }),
        ("with a bias", |s, x| {
            let (y, b) = (product(s, x), s.weights(&[HIDDEN]));
            let y = s.op("Add", &[&y, &b]);
            heads(s, &y)
        }),
        ("with a bias that heads share", |s, x| {
            let y = product(s, x);
            let (y, b) = (heads(s, &y), s.weights(&[SIZE]));
            s.op("Add", &[&y, &b])
        }),
        ("by a sum over letters", |s, x| {
            let w = s.weights(&[HIDDEN, SIZE, HEADS]);
            s.with(
                "Einsum",
                &[x, &w],
                &[("equation", A::Text("bse,edh->bhsd"))],
            )
        }),
        ("beside keys and values", |s, x| {
            let w = s.weights(&[HIDDEN, 3 * HIDDEN]);
            let y = s.op("MatMul", &[x, &w]);
            let parts = s.many(
                "Split",
                &[&y],
                &[("axis", A::Int(2)), ("num_outputs", A::Int(3))],
                3,
            );
            let rest = s.op("Add", &[&parts[1], &parts[2]]);
            let zero = s.float(0.0);
            let rest = s.op("Mul", &[&rest, &zero]);
            let rest = s.with("ReduceSum", &[&rest], &[]);
            let y = s.op("Add", &[&parts[0], &rest]);
            heads(s, &y)
        }),
        ("as one of three along an axis", |s, x| {
            let w = s.weights(&[HIDDEN, 3 * HIDDEN]);
            let y = s.op("MatMul", &[x, &w]);
            let y = s.reshape(&y, &[0, 0, 3, N, D]);
            let y = s.transpose(&y, &[2, 0, 3, 1, 4]);
            let first = s.int(0);
            s.gather(&y, &first, 0)
        }),
        ("behind a root mean square", |s, x| {
            let y = product(s, x);
            let y = heads(s, &y);
            let squares = s.op("Mul", &[&y, &y]);
            let axes = s.ints(&[-1]);
            let mean = s.op("ReduceMean", &[&squares, &axes]);
            let root = s.op("Sqrt", &[&mean]);
            let (y, gain) = (s.op("Div", &[&y, &root]), s.weights(&[SIZE]));
            s.op("Mul", &[&y, &gain])
        }),
        ("behind a norm of heads", |s, x| {
            let y = product(s, x);
            let y = s.reshape(&y, &[0, 0, N, D]);
            let (gain, bias) = (s.weights(&[SIZE]), s.weights(&[SIZE]));
            let y = s.op("LayerNormalization", &[&y, &gain, &bias]);
            s.transpose(&y, &[0, 2, 1, 3])
        }),
        ("behind a norm of all heads", |s, x| {
            let (y, gain) = (product(s, x), s.weights(&[HIDDEN]));
            let y = s.op("LayerNormalization", &[&y, &gain]);
            heads(s, &y)
        }),
        ("by a convolution of width 1", |s, x| {
            let y = s.transpose(x, &[0, 2, 1]);
            let (w, b) = (s.weights(&[HIDDEN, HIDDEN, 1]), s.weights(&[HIDDEN]));
            let y = s.op("Conv", &[&y, &w, &b]);
            let y = s.reshape(&y, &[0, N, D, -1]);
            s.transpose(&y, &[0, 1, 3, 2])
        }),
        ("by transposed weights", |s, x| {
            let w = s.weights(&[HIDDEN, HIDDEN]);
            let w = s.transpose(&w, &[1, 0]);
            let y = s.op("MatMul", &[x, &w]);
            heads(s, &y)
        }),
        ("by weights of two ranks", |s, x| {
            let (down, up) = (s.weights(&[HIDDEN, 2]), s.weights(&[2, HIDDEN]));
            let y = s.op("MatMul", &[x, &down]);
            let (y, whole) = (s.op("MatMul", &[&y, &up]), product(s, x));
            let y = s.op("Add", &[&whole, &y]);
            heads(s, &y)
        }),
        ("by weights of integers", |s, x| {
            let numbers = (0..HIDDEN * HIDDEN).map(|i| ((7 * i) % 251) as f64 - 125.0);
            let w = s.typed(DType::I8, &[HIDDEN, HIDDEN], numbers);
            let scale = s.floats(&[HIDDEN], (0..HIDDEN).map(|i| 0.002 + 0.0001 * i as f64));
            let w = s.with("DequantizeLinear", &[&w, &scale], &[("axis", A::Int(1))]);
            let y = s.op("MatMul", &[x, &w]);
            heads(s, &y)
        }),
        ("with a bias that something else reads", |s, x| {
            let b = s.weights(&[HIDDEN]);
            let (y, own) = (product(s, x), s.op("Mul", &[x, &b]));
            let own = s.with("ReduceSum", &[&own], &[]);
            let y = s.op("Add", &[&y, &b]);
            let y = s.op("Add", &[&y, &own]);
            heads(s, &y)
        }),
    ];
    let mut wrong = vec![];
    for (name, query) in ways {
        match relaid(&projected(query), Layout::Interleaved) {
            Ok((_, done)) => {
                let far = differences(&done).into_iter();
                wrong.extend(far.map(|far| (name, far)));
            }
            Err(why) => wrong.push((name, why)),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Whether the sequence is shorter than all that detection runs.
fn shorter(s: &mut Sketch) -> String {
    let shape = s.op("Shape", &["input_ids"]);
    let one = s.int(1);
    let length = s.gather(&shape, &one, 0);
    let many = s.int(1 << 20);
    s.op("Less", &[&length, &many])
}

#[test]
fn features_that_cannot_move_are_refused() {
    let ways: [(&str, Query); 13] = [
        // All runs of detection are shorter than that.
        ("which features it picks is unknown", |s, x| {
            let y = product(s, x);
            let places = [0, 1].map(|by| {
                let places: Vec<i64> = (0..N * D).map(|i| i ^ by).collect();
                s.ints(&places)
            });
            let is_short = shorter(s);
            let places = s.op("Where", &[&is_short, &places[0], &places[1]]);
            let y = s.gather(&y, &places, 2);
            heads(s, &y)
        }),
        ("the part is unknown", |s, x| {
            let w = s.weights(&[HIDDEN, 2 * HIDDEN]);
            let y = s.op("MatMul", &[x, &w]);
            let (zero, width, axes) = (s.ints(&[0]), s.ints(&[N * D]), s.ints(&[2]));
            let is_short = shorter(s);
            let start = s.op("Where", &[&is_short, &zero, &width]);
            let end = s.op("Add", &[&start, &width]);
            let y = s.op("Slice", &[&y, &start, &end, &axes]);
            heads(s, &y)
        }),
        ("its sizes do not follow the lengths", |s, x| {
            let y = product(s, x);
            let sizes = [[0, 0, N, D], [0, 0, D, N]].map(|sizes| s.ints(&sizes));
            let is_short = shorter(s);
            let sizes = s.op("Where", &[&is_short, &sizes[0], &sizes[1]]);
            let y = s.op("Reshape", &[&y, &sizes]);
            let y = s.reshape(&y, &[0, 0, N, D]);
            s.transpose(&y, &[0, 2, 1, 3])
        }),
        ("it picks features that move", |s, x| {
            let y = product(s, x);
            let places = (0..HIDDEN).map(|i| i as f64);
            let places = s.typed(DType::I64, &[HEADS, SIZE], places);
            let y = s.gather(&y, &places, 2);
            s.transpose(&y, &[0, 2, 1, 3])
        }),
        (
            "which is not known as a cache of keys, would have them",
            |s, x| {
                let y = product(s, x);
                let y = heads(s, &y);
                let two = s.float(2.0);
                let tapped = s.op("Mul", &[&y, &two]);
                s.output(&tapped);
                y
            },
        ),
        ("offsets, which is not known as a cache of keys", |s, x| {
            let b = s.input("offsets", DType::F32, &[&HIDDEN.to_string()]);
            let y = product(s, x);
            let y = s.op("Add", &[&y, &b]);
            heads(s, &y)
        }),
        (
            "Softmax of ai.onnx is not known to take features in another order",
            |s, x| {
                let y = product(s, x);
                let y = heads(s, &y);
                s.with("Softmax", &[&y], &[("axis", A::Int(3))])
            },
        ),
        ("its features are quantized in blocks", |s, x| {
            let numbers = (0..HIDDEN * HIDDEN).map(|i| ((7 * i) % 251) as f64 - 125.0);
            let w = s.typed(DType::I8, &[HIDDEN, HIDDEN], numbers);
            let scales = (0..HIDDEN * HEADS).map(|i| 0.002 + 0.0001 * i as f64);
            let scales = s.floats(&[HIDDEN, HEADS], scales);
            let blocks = [("axis", A::Int(1)), ("block_size", A::Int(D))];
            let w = s.with("DequantizeLinear", &[&w, &scales], &blocks);
            let y = s.op("MatMul", &[x, &w]);
            heads(s, &y)
        }),
        (
            "an operand would differ along an axis that it has not",
            |s, x| {
                let y = product(s, x);
                let y = s.reshape(&y, &[0, 0, 2 * N, D / 2]);
                let gain = s.weights(&[SIZE / 2]);
                let y = s.op("LayerNormalization", &[&y, &gain]);
                heads(s, &y)
            },
        ),
        ("would differ along an axis that it has not", |s, x| {
            let y = product(s, x);
            let y = heads(s, &y);
            let halves = s.reshape(&y, &[0, 0, 0, 2, D / 2]);
            let axes = s.ints(&[4]);
            let most = s.op("ReduceMax", &[&halves, &axes]);
            let y = s.op("Div", &[&halves, &most]);
            s.reshape(&y, &[0, 0, 0, D])
        }),
        ("features move between the parts that it joins", |s, x| {
            let y = product(s, x);
            let (a, b) = (
                s.slice(&y, 2, [0, D + 2, 1]),
                s.slice(&y, 2, [D + 2, 1 << 40, 1]),
            );
            let two = s.float(2.0);
            let a = s.op("Mul", &[&a, &two]);
            let y = s.concat(&[&a, &b], 2);
            heads(s, &y)
        }),
        ("two orders at once", |s, x| {
            let y = product(s, x);
            let (first, rest) = (s.slice(&y, 2, [0, 1, 1]), s.slice(&y, 2, [1, 1 << 40, 1]));
            let next = s.concat(&[&rest, &first], 2);
            let y = s.op("Add", &[&y, &next]);
            heads(s, &y)
        }),
        ("it picks features that move", |s, x| {
            let y = product(s, x);
            let y = heads(s, &y);
            let zero = s.float(0.0);
            let none = s.op("Mul", &[&y, &zero]);
            let none = s.cast(&none, DType::I64);
            let row = s.weights(&[2]);
            let none = s.gather(&row, &none, 0);
            s.op("Add", &[&y, &none])
        }),
    ];
    let mut wrong = vec![];
    for (part, query) in ways {
        let model = projected(query);
        match relaid(&model, Layout::Interleaved) {
            Err(why) if why.contains(part) => {}
            Err(why) => wrong.push((part, why)),
            Ok((_, done)) => wrong.push((part, format!("{:?}", done.found.rotary.len()))),
        }
        // The same model is read otherwise.
        let same = relaid(&model, Layout::Half).map(drop);
        assert!(same.is_ok(), "{part}: {same:?}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn weights_that_a_caller_may_give_are_named() {
    let query = |s: &mut Sketch, x: &str| {
        let w = s.weights(&[HIDDEN, HIDDEN]);
        let width = HIDDEN.to_string();
        s.input(&w, DType::F32, &[&width, &width]);
        let y = s.op("MatMul", &[x, &w]);
        heads(s, &y)
    };
    let (_, done) = relaid(&projected(query), Layout::Interleaved).unwrap();
    let warnings = done.report.warnings.join("\n");
    assert!(
        warnings.contains("weights that are inputs with a default"),
        "{warnings}"
    );
    let (_, done) = relaid(&projected(|s, x| s.headed(x)), Layout::Interleaved).unwrap();
    assert!(
        done.report.warnings.is_empty(),
        "{:?}",
        done.report.warnings
    );
}

#[test]
fn what_gives_sizes_alone_stays() {
    let model = projected(|s, x| {
        let y = product(s, x);
        // A head and the others are read, and of half a head the number of its features alone.
        let half = s.slice(&y, 2, [0, D / 2, 1]);
        let (first, rest) = (s.slice(&y, 2, [0, D, 1]), s.slice(&y, 2, [D, 1 << 40, 1]));
        let y = s.concat(&[&first, &rest], 2);
        let y = heads(s, &y);
        let dims = s.op("Shape", &[&half]);
        let last = s.int(2);
        let width = s.gather(&dims, &last, 0);
        let width = s.cast(&width, DType::F32);
        let width = s.op("Sqrt", &[&width]);
        s.op("Div", &[&y, &width])
    });
    let (_, done) = relaid(&model, Layout::Interleaved).unwrap();
    assert_eq!(differences(&done), Vec::<String>::new());
}

/// The payloads of the constants of a model, sorted.
fn payloads(model: &Model) -> Vec<Vec<u8>> {
    let graph = model.graph();
    let constants = graph.values().filter_map(|value| graph.constant(value));
    let large = constants.filter(|tensor| tensor.len() >= 64);
    let mut all: Vec<Vec<u8>> = large.map(|tensor| tensor.bytes().to_vec()).collect();
    all.sort_unstable();
    all
}

#[test]
fn weights_come_back_byte_for_byte() {
    for (name, layout) in [
        ("llama/dynamo", Layout::Half),
        ("llama/dynamo23", Layout::Half),
        ("llama/ort-O2", Layout::Half),
        ("phi3/torchscript", Layout::Half),
        ("gpt_neox/torchscript", Layout::Half),
        ("gptj/dynamo", Layout::Interleaved),
    ] {
        let first = fixture(name);
        let (there, done) = relaid(&first, layout.other()).expect(name);
        assert!(!done.report.edits.is_empty(), "{name}");
        let (back, _) = relaid(&there, layout).expect(name);
        let [first, there, back] = [&first, &there, &back].map(payloads);
        assert_ne!(first, there, "{name}");
        let kept = first.iter().filter(|bytes| back.contains(bytes)).count();
        assert!(kept + 1 >= first.len(), "{name}: {kept} of {}", first.len());
    }
}

#[test]
fn another_model_is_told_from_the_same_in_another_order() {
    let (_, mut done) = relaid(&fixture("llama/optimum"), Layout::Interleaved).unwrap();
    assert_eq!(differences(&done), Vec::<String>::new());
    let pair = &mut done.respelled[0];
    assert_eq!(pair.moved.len(), 4, "keys of two layers, in and out");
    pair.moved.pop();
    assert!(
        !differences(&done).is_empty(),
        "a cache was taken for one that stays"
    );
}
