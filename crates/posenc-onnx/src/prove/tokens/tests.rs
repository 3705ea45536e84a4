//! Removals that take or leave more than position fail.

use posenc_ir::{DType, Model};

use crate::detect::{Options, detect};
use crate::graph::sketch::{A, HEADS, Sketch};
use crate::request::Request;
use crate::rewrite::swap::branch::swap;
use posenc_encodings::kind::Kind;

/// Two layers whose scores get `entering`, made of a linear bias and of which keys have high
/// ids: those of the trial run are low.
fn model(entering: fn(&mut Sketch, &str, &str) -> String) -> Model {
    let mut s = Sketch::default();
    let mut x = s.embedded();
    let at = s.range();
    let (rows, columns) = (s.unsqueeze(&at, &[1]), s.unsqueeze(&at, &[0]));
    let d = s.op("Sub", &[&columns, &rows]);
    let d = s.op("Abs", &[&d]);
    let d = s.cast(&d, DType::F32);
    let slopes = s.floats(&[1, HEADS, 1, 1], [-0.25, -0.0625, -0.015625]);
    let line = s.op("Mul", &[&slopes, &d]);
    let (keys, id) = (s.unsqueeze("input_ids", &[1, 2]), s.int(9));
    let keys = s.op("Greater", &[&keys, &id]);
    let bias = entering(&mut s, &line, &keys);
    for _ in 0..2 {
        let [q, k, v] = [0; 3].map(|_| s.headed(&x));
        let k = s.transpose(&k, &[0, 1, 3, 2]);
        let scores = s.op("MatMul", &[&q, &k]);
        let scores = s.op("Add", &[&scores, &bias]);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = s.op("MatMul", &[&weights, &v]);
        let y = s.merged(&y);
        x = s.op("Add", &[&x, &y]);
    }
    s.model(17, &[&x])
}

/// Takes the encoding out.
fn without(model: &Model) -> Result<(), String> {
    let options = Options::default();
    let request = Request {
        to: Some(Kind::None),
        ..Request::default()
    };
    let swapped = swap(model, &detect(model, &options), &request, &options);
    swapped.map(|_| ()).map_err(|why| why.to_string())
}

/// A name, and what is done to two values.
type Case = (&'static str, fn(&mut Sketch, &str, &str) -> String);

#[test]
fn what_tokens_change_together_with_position_is_refused_with_its_node() {
    let cases: &[Case] = &[
        ("another slope for some keys", |s, line, keys| {
            let keys = s.cast(keys, DType::F32);
            let one = s.float(1.0);
            let factor = s.op("Add", &[&keys, &one]);
            s.op("Mul", &[&factor, line])
        }),
        (
            "a number of each head instead of the bias",
            |s, line, keys| {
                let heads = s.floats(&[1, HEADS, 1, 1], [2.0, -1.0, 0.5]);
                s.op("Where", &[keys, &heads, line])
            },
        ),
        ("a limit for some keys", |s, line, keys| {
            let keys = s.cast(keys, DType::F32);
            let one = s.float(-1.0);
            let limit = s.op("Mul", &[&keys, &one]);
            s.op("Min", &[line, &limit])
        }),
    ];
    for (name, entering) in cases {
        let why = without(&model(*entering)).expect_err(name);
        assert!(why.starts_with("sketch/"), "{name}: {why}");
        assert!(why.contains("cannot be separated"), "{name}: {why}");
    }
}

#[test]
fn a_bias_and_what_hides_or_gates_it_are_accepted() {
    let cases: &[Case] = &[
        ("a bias alone", |s, line, _| s.op("Identity", &[line])),
        ("a number for some keys", |s, line, keys| {
            let keys = s.cast(keys, DType::F32);
            s.op("Add", &[line, &keys])
        }),
        ("keys that are hidden", |s, line, keys| {
            let low = s.float(-1e9);
            s.op("Where", &[keys, &low, line])
        }),
        ("keys without a bias", |s, line, keys| {
            let zero = s.float(0.0);
            s.op("Where", &[keys, &zero, line])
        }),
    ];
    for (name, entering) in cases {
        without(&model(*entering)).unwrap_or_else(|why| panic!("{name}: {why}"));
    }
}

/// A linear bias of positions that count the ids below 9 only, which are hidden or not.
fn skipping(hidden: bool) -> Model {
    let mut s = Sketch::default();
    let mut x = s.embedded();
    let id = s.int(9);
    let kept = s.op("Less", &["input_ids", &id]);
    let ones = s.cast(&kept, DType::I64);
    let axis = s.int(1);
    let at = s.op("CumSum", &[&ones, &axis]);
    let at = s.op("Mul", &[&at, &ones]);
    let at = s.unsqueeze(&at, &[1, 2]);
    let at = s.cast(&at, DType::F32);
    let slopes = s.floats(&[1, HEADS, 1, 1], [0.25, 0.0625, 0.015625]);
    let line = s.op("Mul", &[&slopes, &at]);
    let kept = s.unsqueeze(&kept, &[1, 2]);
    for _ in 0..2 {
        let [q, k, v] = [0; 3].map(|_| s.headed(&x));
        let k = s.transpose(&k, &[0, 1, 3, 2]);
        let scores = s.op("MatMul", &[&q, &k]);
        let mut scores = s.op("Add", &[&scores, &line]);
        if hidden {
            let low = s.float(-1e9);
            scores = s.op("Where", &[&kept, &scores, &low]);
        }
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = s.op("MatMul", &[&weights, &v]);
        let y = s.merged(&y);
        x = s.op("Add", &[&x, &y]);
    }
    s.model(17, &[&x])
}

#[test]
fn positions_may_skip_tokens_that_are_hidden_and_no_others() {
    without(&skipping(true)).unwrap();
    let why = without(&skipping(false)).unwrap_err();
    assert!(why.contains("which tokens there are"), "{why}");
}
