//! Positions beside rotations that were not read.

use posenc_encodings::kind::Kind;
use posenc_ir::{DType, Model};

use crate::detect::{Options, detect};
use crate::graph::sketch::{A, HEADS, HIDDEN, SIZE, Sketch};
use crate::inspect::report;
use crate::request::{LawName, Request};
use crate::rewrite::rewrite;

/// What is done to values, to what attention gives, and to the scores of a model with rotated queries and keys.
#[derive(Clone, Copy, Default)]
struct Else {
    values: Option<Change>,
    output: Option<Change>,
    late: Option<Change>,
}

type Change = fn(&mut Sketch, &str) -> String;

fn model(other: Else) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let at = s.range();
    let angles = s.cast(&at, DType::F32);
    let angles = s.unsqueeze(&angles, &[1]);
    let pairs = SIZE / 2;
    let frequencies = (0..pairs).map(|i| 10_000f64.powf(-(i as f64) / pairs as f64));
    let frequencies = s.floats(&[1, pairs], frequencies);
    let angles = s.op("Mul", &[&angles, &frequencies]);
    let angles = s.concat(&[&angles, &angles], -1);
    let [cos, sin] = ["Cos", "Sin"].map(|wave| s.op(wave, &[&angles]));
    let [q, k] = [(); 2].map(|()| {
        let heads = s.headed(&x);
        let [first, second] =
            [[0, pairs as i64, 1], [pairs as i64, SIZE as i64, 1]].map(|r| s.slice(&heads, 3, r));
        let second = s.op("Neg", &[&second]);
        let turned = s.concat(&[&second, &first], 3);
        let [a, b] = [(heads, &cos), (turned, &sin)].map(|(x, wave)| s.op("Mul", &[&x, wave]));
        s.op("Add", &[&a, &b])
    });
    let change = |s: &mut Sketch, x: String, change: Option<Change>| match change {
        Some(change) => change(s, &x),
        None => x,
    };
    let v = s.headed(&x);
    let v = change(&mut s, v, other.values);
    let y = s.weighted(&q, &k, &v);
    let y = change(&mut s, y, other.output);
    let y = s.op("Add", &[&x, &y]);
    let y = change(&mut s, y, other.late);
    let y = s.projected(&y);
    s.model(17, &[&y])
}

/// Features times numbers of their positions.
fn decayed(s: &mut Sketch, x: &str) -> String {
    let at = s.range();
    let at = s.cast(&at, DType::F32);
    let at = s.unsqueeze(&at, &[1]);
    let fall = s.float(0.9);
    let decay = s.op("Pow", &[&fall, &at]);
    s.op("Mul", &[x, &decay])
}

/// Features plus a row for each position.
fn placed(s: &mut Sketch, x: &str) -> String {
    let at = s.range();
    let table = s.weights(&[40, HIDDEN]);
    let rows = s.gather(&table, &at, 0);
    let scale = s.op("Tanh", &[&rows]);
    s.op("Mul", &[x, &scale])
}

/// Features times one number, the same for all.
fn scaled(s: &mut Sketch, x: &str) -> String {
    let half = s.float(0.5);
    s.op("Mul", &[x, &half])
}

fn linear() -> Request {
    let mut request = Request {
        scale: Some(LawName::Linear.into()),
        ..Request::default()
    };
    request.parameters.factor = Some(2.0);
    request
}

fn others() -> [Else; 3] {
    [
        Else {
            values: Some(decayed),
            ..Else::default()
        },
        Else {
            output: Some(placed),
            ..Else::default()
        },
        Else {
            late: Some(decayed),
            ..Else::default()
        },
    ]
}

#[test]
fn a_rescale_leaves_no_position_that_was_not_read() {
    let none = Request {
        to: Some(Kind::Rope),
        ..Request::default()
    };
    for other in others() {
        for request in [linear(), none.clone()] {
            let why = rewrite(&mut model(other), &request)
                .unwrap_err()
                .to_string();
            assert!(
                why.contains("belongs to no encoding that was read"),
                "{why}"
            );
            let mut allowed = request;
            allowed.allowances.allow_unread = true;
            let done = rewrite(&mut model(other), &allowed).map(|_| ());
            assert_eq!(done.map_err(|why| why.to_string()), Ok(()));
        }
    }
}

#[test]
fn an_inspection_names_it() {
    let warnings = |model: &Model| report(model, &detect(model, &Options::default())).warnings;
    for other in others() {
        let told = warnings(&model(other));
        assert!(
            matches!(&told[..], [one] if one.contains("changes from token to token")),
            "{told:?}"
        );
    }
    let scaled = Else {
        values: Some(scaled),
        ..Else::default()
    };
    for read in [Else::default(), scaled] {
        assert_eq!(warnings(&model(read)), [""; 0]);
        assert!(rewrite(&mut model(read), &linear()).is_ok());
    }
}

#[test]
fn a_bias_that_every_layer_gates_is_no_other_position() {
    let mut s = Sketch::default();
    let mut x = s.embedded();
    let d = s.distance();
    let d = s.cast(&d, DType::F32);
    let slopes = s.floats(&[HEADS, 1, 1], [0.5, 0.25, 0.125]);
    let line = s.op("Mul", &[&slopes, &d]);
    for _ in 0..2 {
        let [scores, v] = s.scored(&x, &x);
        let weight = s.weights(&[HIDDEN, HEADS]);
        let gate = s.op("MatMul", &[&x, &weight]);
        let gate = s.op("Sigmoid", &[&gate]);
        let gate = s.transpose(&gate, &[0, 2, 1]);
        let gate = s.unsqueeze(&gate, &[3]);
        let bias = s.op("Mul", &[&gate, &line]);
        let scores = s.op("Add", &[&scores, &bias]);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = s.op("MatMul", &[&weights, &v]);
        let y = s.merged(&y);
        x = s.op("Add", &[&x, &y]);
    }
    let model = s.model(17, &[&x]);
    let found = detect(&model, &Options::default());
    assert_eq!(found.findings[0].sites, [0, 1]);
    assert_eq!(report(&model, &found).warnings, [""; 0]);
}
