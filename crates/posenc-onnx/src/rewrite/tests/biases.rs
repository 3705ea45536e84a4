//! Biases that get longer, and biases that are divided.

use posenc_ir::{DType, Model};

use crate::detect::{Options, detect};
use crate::error::RewriteError;
use crate::graph::sketch::{A, HEADS, HIDDEN, Sketch};
use crate::request::{LawName, Request};
use crate::rewrite::rewrite;

const SLOPES: [f64; HEADS] = [0.25, 0.0625, 0.015625];

/// Keys of the tables.
const KEYS: i64 = 64;

/// How a value is made.
type Make = fn(&mut Sketch) -> String;

/// A layer of causal attention whose scores go through `change`, with other outputs that it gives.
fn changed(change: impl Fn(&mut Sketch, &str) -> (String, Vec<String>)) -> Model {
    changed_on(|s| s.embedded(), change)
}

/// The same on tokens that are made so.
fn changed_on(
    tokens: impl Fn(&mut Sketch) -> String,
    change: impl Fn(&mut Sketch, &str) -> (String, Vec<String>),
) -> Model {
    let mut s = Sketch::default();
    let x = tokens(&mut s);
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let k = s.transpose(&k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[&q, &k]);
    let (scores, more) = change(&mut s, &scores);
    let d = s.distance();
    let (zero, low) = (s.int(0), s.float(-1e9));
    let later = s.op("Greater", &[&d, &zero]);
    let scores = s.op("Where", &[&later, &low, &scores]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    let outputs: Vec<&str> = [&y].into_iter().chain(&more).map(String::as_str).collect();
    s.model(18, &outputs)
}

/// The layer with this added to the scores.
fn with(bias: impl Fn(&mut Sketch) -> String) -> Model {
    changed(|s, scores| {
        let bias = bias(s);
        (s.op("Add", &[scores, &bias]), vec![])
    })
}

/// Slopes times the distance, `[head, query, key]`.
fn line(s: &mut Sketch) -> String {
    let d = s.distance();
    let d = s.cast(&d, DType::F32);
    let slopes = s.floats(&[HEADS, 1, 1], SLOPES);
    s.op("Mul", &[&slopes, &d])
}

/// The length of the sequence, `[1]`.
fn length(s: &mut Sketch) -> String {
    let at = s.range();
    s.op("Shape", &[&at])
}

/// Numbers by key and head, `[head, 1, key]`, those of the last keys from `start` on.
fn last(s: &mut Sketch, number: impl Fn(f64) -> f64, start: &str) -> String {
    let cells = SLOPES.into_iter().flat_map(|m| {
        let number = &number;
        (0..KEYS).map(move |c| m * number((c - KEYS + 1) as f64))
    });
    let cells: Vec<f64> = cells.collect();
    let table = s.floats(&[HEADS, 1, KEYS as usize], cells);
    let [end, axis] = [i64::MAX, 2].map(|n| s.ints(&[n]));
    s.op("Slice", &[&table, start, &end, &axis])
}

/// So many rows less the length.
fn rest(s: &mut Sketch, rows: i64) -> String {
    let (rows, length) = (s.ints(&[rows]), length(s));
    s.op("Sub", &[&rows, &length])
}

fn longer(model: &Model) -> Result<Model, String> {
    let mut request = Request::default();
    request.parameters.max_length = Some(150);
    said(model, &request)
}

fn divided(model: &Model) -> Result<Model, String> {
    let mut request = Request {
        scale: Some(LawName::Linear.into()),
        ..Request::default()
    };
    request.parameters.factor = Some(2.0);
    said(model, &request)
}

fn said(model: &Model, request: &Request) -> Result<Model, String> {
    let mut model = model.clone();
    let done: Result<_, RewriteError> = rewrite(&mut model, request);
    done.map(|_| model).map_err(|why| why.to_string())
}

/// The largest dimension of a constant.
fn largest(model: &Model) -> usize {
    let graph = model.graph();
    let dims = graph.values().filter_map(|v| graph.stored(v));
    let most = dims.flat_map(|stored| stored.dims.iter().copied()).max();
    most.unwrap_or(0)
}

#[test]
fn slopes_of_the_last_keys_go_on() {
    let starts: [(&str, Make); 4] = [
        ("rows less the length", |s| rest(s, KEYS)),
        ("not below 0", |s| {
            let (rest, zero) = (rest(s, KEYS), s.ints(&[0]));
            s.op("Max", &[&zero, &rest])
        }),
        ("the length taken off", |s| {
            let (rows, length) = (s.ints(&[KEYS]), length(s));
            let negative = s.op("Neg", &[&length]);
            s.op("Add", &[&negative, &rows])
        }),
        ("from the end", |s| {
            let length = length(s);
            s.op("Neg", &[&length])
        }),
    ];
    for (name, start) in starts {
        let model = with(|s| {
            let start = start(s);
            last(s, |distance| distance, &start)
        });
        let made = longer(&model).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(largest(&made), 150, "{name}");
    }
}

#[test]
fn a_factor_and_a_length_follow_from_each_other_where_slopes_end() {
    let ended = with(|s| {
        let start = rest(s, KEYS);
        last(s, |distance| distance, &start)
    });
    let made = |factor: Option<f64>, length: Option<usize>, model: &Model| {
        let mut request = Request {
            scale: Some(LawName::Linear.into()),
            ..Request::default()
        };
        request.parameters.factor = factor;
        request.parameters.max_length = length;
        said(model, &request)
    };
    let slope = |model: &Model| {
        let found = detect(model, &Options::default());
        let entry = found.findings.first().expect("a bias");
        entry.encoding.params()["slopes"][0].as_f64()
    };
    for (factor, length) in [(Some(2.0), None), (None, Some(128)), (Some(2.0), Some(128))] {
        let made = made(factor, length, &ended).unwrap();
        assert_eq!(largest(&made), 128, "{factor:?} {length:?}");
        assert_eq!(slope(&made), Some(SLOPES[0] / 2.0), "{factor:?} {length:?}");
    }
    let endless = with(line);
    let why = made(None, Some(128), &endless).map(drop).unwrap_err();
    assert!(why.contains("nothing tells for which length"), "{why}");
    // Nothing is longer than what has no end.
    assert_eq!(
        largest(&made(Some(2.0), None, &endless).unwrap()),
        largest(&endless)
    );
}

#[test]
fn a_bias_of_the_last_keys_without_a_rule_is_refused() {
    let bent = with(|s| {
        let start = rest(s, KEYS);
        last(s, |d| if d < -20.0 { -20.0 } else { d }, &start)
    });
    let twice = with(|s| {
        let (rest, two) = (rest(s, KEYS), s.ints(&[2]));
        let start = s.op("Mul", &[&rest, &two]);
        let start = s.op("Div", &[&start, &two]);
        last(s, |d| d, &start)
    });
    let shared = changed(|s, scores| {
        let start = rest(s, KEYS);
        let bias = last(s, |d| d, &start);
        (s.op("Add", &[scores, &bias]), vec![start])
    });
    let ends = "would still end at 64";
    for (name, model, says) in [
        ("bent", bent, "unknown is not supported"),
        ("twice", twice, ends),
        ("shared", shared, ends),
    ] {
        let why = longer(&model).expect_err(name);
        assert!(why.contains(says), "{name}: {why}");
    }
}

#[test]
fn slopes_are_divided_without_what_tokens_are() {
    let flags = |s: &mut Sketch| {
        let id = s.int(7);
        let flags = s.op("Equal", &["input_ids", &id]);
        let flags = s.unsqueeze(&flags, &[1, 2]);
        s.cast(&flags, DType::F32)
    };
    let alone = with(line);
    let apart = changed(|s, scores| {
        let (line, flags) = (line(s), flags(s));
        let scores = s.op("Add", &[scores, &line]);
        (s.op("Add", &[&scores, &flags]), vec![])
    });
    for (name, model) in [("alone", alone), ("apart", apart)] {
        divided(&model).unwrap_or_else(|why| panic!("{name}: {why}"));
    }
    let added = with(|s| {
        let (line, flags) = (line(s), flags(s));
        s.op("Add", &[&line, &flags])
    });
    let times = with(|s| {
        let (line, flags, one) = (line(s), flags(s), s.float(1.0));
        let others = s.op("Sub", &[&one, &flags]);
        s.op("Mul", &[&line, &others])
    });
    let chosen = with(|s| {
        let (line, flags, other) = (line(s), flags(s), s.float(1.0));
        let flags = s.cast(&flags, DType::Bool);
        s.op("Where", &[&flags, &other, &line])
    });
    for (name, model) in [("added", added), ("times", times), ("chosen", chosen)] {
        let why = divided(&model).expect_err(name);
        let says = "numbers of the tokens enter as one value";
        assert!(why.contains(says), "{name}: {why}");
    }
}

/// T5's causal bias of 8 buckets, and the distances that pick them, query − key.
fn buckets(s: &mut Sketch) -> [String; 2] {
    let d = s.distance();
    let (zero, four, last) = (s.int(0), s.int(4), s.int(7));
    let d = s.op("Min", &[&d, &zero]);
    let d = s.op("Neg", &[&d]);
    let near = s.op("Less", &[&d, &four]);
    let x = s.cast(&d, DType::F32);
    let [start, scale, rest] = [4.0, (5.0_f64).ln(), 4.0].map(|v| s.float(v));
    let x = s.op("Div", &[&x, &start]);
    let x = s.op("Log", &[&x]);
    let x = s.op("Div", &[&x, &scale]);
    let x = s.op("Mul", &[&x, &rest]);
    let x = s.cast(&x, DType::I64);
    let x = s.op("Add", &[&x, &four]);
    let x = s.op("Min", &[&x, &last]);
    let row = s.op("Where", &[&near, &d, &x]);
    let table = s.weights(&[8, HEADS]);
    let bias = s.gather(&table, &row, 0);
    [s.transpose(&bias, &[2, 0, 1]), d]
}

#[test]
fn distances_that_hide_keys_too_are_not_divided() {
    divided(&with(|s| buckets(s)[0].clone())).expect("buckets alone");
    let far = |s: &mut Sketch, d: &str| {
        let most = s.int(50);
        s.op("Greater", &[d, &most])
    };
    let inside = with(|s| {
        let [bias, d] = buckets(s);
        let (far, low) = (far(s, &d), s.float(-1e9));
        s.op("Where", &[&far, &low, &bias])
    });
    let apart = changed(|s, scores| {
        let [bias, d] = buckets(s);
        let (far, low) = (far(s, &d), s.float(-1e9));
        let scores = s.op("Add", &[scores, &bias]);
        (s.op("Where", &[&far, &low, &scores]), vec![])
    });
    let output = changed(|s, scores| {
        let [bias, d] = buckets(s);
        (s.op("Add", &[scores, &bias]), vec![d])
    });
    for (name, model) in [("inside", inside), ("apart", apart), ("output", output)] {
        let why = divided(&model).expect_err(name);
        assert!(why.contains("act on something else too"), "{name}: {why}");
    }
}

#[test]
fn sinks_stay_where_a_bias_is_divided() {
    let mut s = Sketch::default();
    let x = s.embedded();
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let k = s.transpose(&k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[&q, &k]);
    let bias = line(&mut s);
    let scores = s.op("Add", &[&scores, &bias]);
    let d = s.distance();
    let (zero, low) = (s.int(0), s.float(-1e9));
    let later = s.op("Greater", &[&d, &zero]);
    let scores = s.op("Where", &[&later, &low, &scores]);
    let first = s.slice(&scores, 3, [0, 1, 1]);
    let (sinks, shape) = (s.weights(&[1, HEADS, 1, 1]), s.op("Shape", &[&first]));
    let sinks = s.op("Expand", &[&sinks, &shape]);
    let scores = s.concat(&[&scores, &sinks], 3);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let weights = s.slice(&weights, 3, [0, -1, 1]);
    let y = s.op("MatMul", &[&weights, &v]);
    let model = divided(&s.model(18, &[&y])).unwrap();
    let quotients = model.graph().nodes().filter(|(_, node)| node.is("Div"));
    assert_eq!(quotients.count(), 1, "that of the bias alone");
}

#[test]
fn a_scaling_of_a_table_says_what_it_keeps_beside_it() {
    let mut request = Request {
        scale: Some(LawName::Linear.into()),
        ..Request::default()
    };
    request.parameters.max_length = Some(64);
    let learned = |s: &mut Sketch| {
        let (x, at, table) = (s.embedded(), s.range(), s.weights(&[32, HIDDEN]));
        let rows = s.gather(&table, &at, 0);
        s.op("Add", &[&x, &rows])
    };
    let biased = |s: &mut Sketch, scores: &str| {
        let bias = line(s);
        (s.op("Add", &[scores, &bias]), vec![])
    };
    let plain = |_: &mut Sketch, scores: &str| (scores.to_owned(), vec![]);
    let warnings = |mut model: Model| rewrite(&mut model, &request).unwrap().report.warnings;
    let says = "alibi stays as it is: this scaling changes other encodings";
    assert_eq!(warnings(changed_on(learned, biased)), [says]);
    assert!(warnings(changed_on(learned, plain)).is_empty());
}
