use std::f64::consts::FRAC_PI_2;

use ndarray::ArrayD;
use posenc_ir::eval::{Budget, Value, trace};
use posenc_ir::{DType, Model};

use super::*;
use crate::graph::sketch::{A, HEADS, HIDDEN, SIZE, Sketch};

mod blocks;
mod bodies;
mod buckets;
mod decoding;
mod fixed;
mod fused;
mod gated;
mod halves;
mod masked;
mod qlinear;
mod quantized;
mod refused;
mod rotating;
mod sinks;

/// A spelling of something, from the queries and keys `[batch, heads, sequence, size]`.
type Spelling = fn(&mut Sketch, &str, &str) -> String;

/// A model that gives a spelling's value, and the queries and keys, so that all is in use.
fn model(spelling: impl FnOnce(&mut Sketch, &str, &str) -> String) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let (q, k) = (s.headed(&x), s.headed(&x));
    let y = spelling(&mut s, &q, &k);
    s.model(17, &[&y, &q, &k])
}

/// The operators of a model.
fn operators(model: &Model) -> Vec<String> {
    let nodes = model.graph().nodes();
    nodes.map(|(_, node)| node.op().to_owned()).collect()
}

/// The output for ids of these dimensions.
fn output(model: &Model, dims: [usize; 2]) -> ArrayD<f64> {
    let graph = model.graph();
    let [batch, sequence] = dims;
    let ids: Vec<i64> = (0..batch * sequence)
        .map(|i| (7 * i as i64 + 3) % 30)
        .collect();
    let ids = Value::int(ArrayD::from_shape_vec(dims.to_vec(), ids).unwrap());
    let input = graph.find(graph.main(), "input_ids").unwrap();
    let seeds = [(input, ids)].into_iter().collect();
    let budget = Budget { elements: 1 << 20 };
    let run = trace(model, &seeds, &|_| false, &budget);
    let output = graph.scope(graph.main()).outputs()[0];
    run.get(output).to_f64().expect("the output has numbers")
}

/// How far two models differ, over several lengths.
fn difference(a: &Model, b: &Model) -> f64 {
    let mut most = 0.0_f64;
    for dims in [[2, 5], [1, 1], [3, 17]] {
        let (a, b) = (output(a, dims), output(b, dims));
        assert_eq!(a.shape(), b.shape());
        most = a
            .iter()
            .zip(&b)
            .fold(most, |m, (a, b)| m.max((a - b).abs()));
    }
    most
}

fn softmax(s: &mut Sketch, x: &str) -> String {
    s.with("Softmax", &[x], &[("axis", A::Int(-1))])
}

fn scores(s: &mut Sketch, q: &str, k: &str) -> String {
    let k = s.transpose(k, &[0, 1, 3, 2]);
    s.op("MatMul", &[q, &k])
}

fn reduced(s: &mut Sketch, op: &str, x: &str) -> String {
    match op {
        "ReduceSum" => {
            let axes = s.ints(&[-1]);
            s.op(op, &[x, &axes])
        }
        _ => s.with(op, &[x], &[("axes", A::Ints(&[-1]))]),
    }
}

/// Each spelling with the operators that it must lose.
const SPELLINGS: [(&str, Spelling, &[&str]); 24] = [
    ("Exp of LogSoftmax", of_log_softmax, &["Exp"]),
    ("Exp of a difference", of_log_sum_exp, &["Exp"]),
    (
        "Exp of a difference, in parts",
        of_log_of_sum,
        &["Exp", "Log"],
    ),
    ("quotient", |s, q, k| quotient(s, q, k, false), &["Exp"]),
    ("reciprocal", |s, q, k| quotient(s, q, k, true), &["Exp"]),
    ("softmax of rows", of_rows, &[]),
    ("softmax of columns", of_columns, &[]),
    (
        "sum of products",
        |s, q, k| repeated(s, q, k, [-2, -3, -1]),
        &["ReduceSum"],
    ),
    (
        "sum of products, inner axis between",
        |s, q, k| repeated_between(s, q, k),
        &["ReduceSum"],
    ),
    (
        "sum of products with stored weights",
        |s, q, _| {
            let weights = s.weights(&[1, SIZE, SIZE]);
            by_weights(s, q, &weights)
        },
        &["ReduceSum"],
    ),
    ("two sums", two_sums, &["Add"]),
    ("chunks", chunks, &["Concat", "Slice"]),
    ("per head", per_head, &[]),
    ("reversed", reversed, &["Slice"]),
    (
        "Einsum of one",
        |s, q, _| s.with("Einsum", &[q], &[("equation", A::Text("bhsd->bshd"))]),
        &["Einsum"],
    ),
    ("padded sum", padded, &["Pad"]),
    ("merged and back", merged_and_back, &[]),
    ("GatherND", gather_nd, &["GatherND"]),
    ("GatherND in each batch", gather_each, &["GatherND"]),
    (
        "If with a constant",
        |s, _, _| chosen(s, true, [twice, thrice]),
        &["If"],
    ),
    (
        "If with equal branches",
        |s, _, _| chosen(s, false, [twice, twice]),
        &["If"],
    ),
    ("columns", columns, &[]),
    ("a table in pieces", in_pieces, &["Concat"]),
    (
        "a part without zeros",
        |s, q, _| {
            let nothing = s.slice(q, 3, [0, 0, 1]);
            let a = with_zeros(s, q, 0, 0);
            let b = with_zeros(s, &nothing, SIZE as i64, 0);
            s.op("Add", &[&a, &b])
        },
        &["Pad"],
    ),
];

/// `Einsum` of queries and numbers `[heads, size]`.
fn elements(s: &mut Sketch, q: &str, equation: &'static str) -> String {
    let numbers = (0..HEADS * SIZE).map(|n| n as f64 - 3.5);
    let numbers = s.floats(&[HEADS, SIZE], numbers);
    s.with("Einsum", &[q, &numbers], &[("equation", A::Text(equation))])
}

fn of_log_softmax(s: &mut Sketch, q: &str, k: &str) -> String {
    let x = scores(s, q, k);
    let x = s.with("LogSoftmax", &[&x], &[("axis", A::Int(-1))]);
    s.op("Exp", &[&x])
}

fn of_log_sum_exp(s: &mut Sketch, q: &str, k: &str) -> String {
    let x = scores(s, q, k);
    let log = reduced(s, "ReduceLogSumExp", &x);
    let x = s.op("Sub", &[&x, &log]);
    s.op("Exp", &[&x])
}

fn of_log_of_sum(s: &mut Sketch, q: &str, k: &str) -> String {
    let x = scores(s, q, k);
    let exp = s.op("Exp", &[&x]);
    let sum = reduced(s, "ReduceSum", &exp);
    let log = s.op("Log", &[&sum]);
    let x = s.op("Sub", &[&x, &log]);
    s.op("Exp", &[&x])
}

fn quotient(s: &mut Sketch, q: &str, k: &str, inverse: bool) -> String {
    let x = scores(s, q, k);
    let most = reduced(s, "ReduceMax", &x);
    let x = s.op("Sub", &[&x, &most]);
    let exp = s.op("Exp", &[&x]);
    let sum = reduced(s, "ReduceSum", &exp);
    if !inverse {
        return s.op("Div", &[&exp, &sum]);
    }
    let inverse = s.op("Reciprocal", &[&sum]);
    s.op("Mul", &[&inverse, &exp])
}

fn of_rows(s: &mut Sketch, q: &str, k: &str) -> String {
    let x = scores(s, q, k);
    let shape = s.op("Shape", &[&x]);
    let last = s.ints(&[3]);
    let last = s.gather(&shape, &last, 0);
    let all = s.ints(&[-1]);
    let rows = s.concat(&[&all, &last], 0);
    let rows = s.op("Reshape", &[&x, &rows]);
    let weights = softmax(s, &rows);
    s.op("Reshape", &[&weights, &shape])
}

fn of_columns(s: &mut Sketch, q: &str, k: &str) -> String {
    let x = scores(s, q, k);
    let x = s.transpose(&x, &[0, 1, 3, 2]);
    let x = s.with("Softmax", &[&x], &[("axis", A::Int(-2))]);
    s.transpose(&x, &[0, 1, 3, 2])
}

/// `q · kᵀ`, with the axes of keys, of queries and of features inserted or summed where named.
fn repeated(s: &mut Sketch, q: &str, k: &str, axes: [i64; 3]) -> String {
    let (q, k) = (s.unsqueeze(q, &axes[..1]), s.unsqueeze(k, &axes[1..2]));
    let all = s.op("Mul", &[&k, &q]);
    let axis = s.ints(&axes[2..]);
    s.with("ReduceSum", &[&all, &axis], &[("keepdims", A::Int(0))])
}

/// Weights `[1, size, columns]` times features, summed over these.
fn by_weights(s: &mut Sketch, q: &str, weights: &str) -> String {
    let (q, axis) = (s.unsqueeze(q, &[-1]), s.ints(&[-2]));
    let all = s.op("Mul", &[&q, weights]);
    s.with("ReduceSum", &[&all, &axis], &[("keepdims", A::Int(0))])
}

fn repeated_between(s: &mut Sketch, q: &str, k: &str) -> String {
    let k = s.transpose(k, &[0, 1, 3, 2]);
    repeated(s, q, &k, [-1, -3, -2])
}

fn two_sums(s: &mut Sketch, q: &str, k: &str) -> String {
    let k = s.transpose(k, &[0, 1, 3, 2]);
    let size = SIZE as i64;
    let parts = [[0, 3, 1], [3, size, 1]].map(|range| {
        let (a, b) = (s.slice(q, 3, range), s.slice(&k, 2, range));
        s.op("MatMul", &[&a, &b])
    });
    s.op("Add", &[&parts[0], &parts[1]])
}

fn chunks(s: &mut Sketch, q: &str, k: &str) -> String {
    let k = s.transpose(k, &[0, 1, 3, 2]);
    let parts = [[0, 4, 1], [4, i64::MAX, 1]].map(|range| {
        let rows = s.slice(q, 2, range);
        s.op("MatMul", &[&rows, &k])
    });
    s.concat(&[&parts[0], &parts[1]], -2)
}

fn columns(s: &mut Sketch, q: &str, _: &str) -> String {
    let parts = [3, 5].map(|n| {
        let weight = s.weights(&[SIZE, n]);
        s.op("MatMul", &[q, &weight])
    });
    s.concat(&[&parts[0], &parts[1]], -1)
}

fn per_head(s: &mut Sketch, q: &str, k: &str) -> String {
    let k = s.transpose(k, &[0, 1, 3, 2]);
    let mut parts = vec![];
    for head in 0..HEADS {
        let at = s.int(head as i64);
        let (a, b) = (s.gather(q, &at, 1), s.gather(&k, &at, 1));
        let product = s.op("MatMul", &[&a, &b]);
        parts.push(s.unsqueeze(&product, &[1]));
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    s.concat(&parts, 1)
}

fn reversed(s: &mut Sketch, q: &str, k: &str) -> String {
    let k = s.transpose(k, &[0, 1, 3, 2]);
    let back = [-1, -(1 << 62), -1];
    let (q, k) = (s.slice(q, -1, back), s.slice(&k, -2, back));
    s.op("MatMul", &[&q, &k])
}

/// Each part with zeros before and behind it, along the features.
fn with_zeros(s: &mut Sketch, x: &str, before: i64, after: i64) -> String {
    let pads = s.ints(&[0, 0, 0, before, 0, 0, 0, after]);
    s.op("Pad", &[x, &pads])
}

fn padded(s: &mut Sketch, q: &str, k: &str) -> String {
    let size = SIZE as i64;
    let part = s.slice(k, 3, [0, 2, 1]);
    let a = with_zeros(s, q, 2, size);
    let b = with_zeros(s, &part, 0, 2 * size);
    let c = with_zeros(s, k, size + 2, 0);
    let sum = s.op("Add", &[&a, &b]);
    s.op("Add", &[&c, &sum])
}

fn merged_and_back(s: &mut Sketch, q: &str, _: &str) -> String {
    let shape = s.op("Shape", &[q]);
    let rows = s.reshape(q, &[-1, SIZE as i64]);
    s.op("Reshape", &[&rows, &shape])
}

fn in_pieces(s: &mut Sketch, _: &str, _: &str) -> String {
    let pieces = [3, 5].map(|n| s.weights(&[30, n]));
    let table = s.concat(&[&pieces[0], &pieces[1]], 1);
    s.gather(&table, "input_ids", 0)
}

fn gather_nd(s: &mut Sketch, _: &str, _: &str) -> String {
    let table = s.weights(&[30, 4]);
    let indices = s.unsqueeze("input_ids", &[-1]);
    s.op("GatherND", &[&table, &indices])
}

/// Of the features of each query, those at the places in a row of a table.
fn gather_each(s: &mut Sketch, q: &str, _: &str) -> String {
    let places = s.ints(&[3, 0, -1]);
    let shape = s.op("Shape", &[q]);
    let first = s.slice(&shape, 0, [0, 3, 1]);
    let three = s.ints(&[3]);
    let wide = s.concat(&[&first, &three], 0);
    let places = s.op("Expand", &[&places, &wide]);
    let places = s.unsqueeze(&places, &[-1]);
    s.with("GatherND", &[q, &places], &[("batch_dims", A::Int(3))])
}

/// One of two branches, by a constant or by the number of ids.
fn chosen(s: &mut Sketch, constant: bool, branches: [fn(&mut Sketch) -> String; 2]) -> String {
    let (few, ids) = (s.int(6), s.op("Size", &["input_ids"]));
    let one = s.int(1);
    let count = if constant { &one } else { &ids };
    let condition = s.op("Greater", &[count, &few]);
    s.choice(&condition, branches)
}

fn twice(s: &mut Sketch) -> String {
    let two = s.float(2.0);
    let y = s.cast("input_ids", DType::F32);
    s.op("Mul", &[&y, &two])
}

/// A wave of queries that are moved by an angle.
fn wave(s: &mut Sketch, q: &str, [moves, op]: [&str; 2], by: f64) -> String {
    let by = s.float(by);
    let angle = s.op(moves, &[q, &by]);
    s.op(op, &[&angle])
}

fn thrice(s: &mut Sketch) -> String {
    let three = s.float(3.0);
    let y = s.cast("input_ids", DType::F32);
    s.op("Mul", &[&y, &three])
}

#[test]
fn a_spelling_becomes_another_that_computes_the_same() {
    for (name, spelling, gone) in SPELLINGS {
        let before = model(spelling);
        let after = plain(&before, &BTreeMap::new());
        let after = after.unwrap_or_else(|| panic!("{name} is not replaced"));
        let (was, is) = (operators(&before), operators(&after));
        for op in gone {
            let has = |all: &[String]| all.iter().any(|o| o == op);
            assert!(has(&was) && !has(&is), "{name}: {op} in {is:?}");
        }
        assert!(is.len() < was.len() + gone.len(), "{name}: {is:?}");
        let far = difference(&before, &after);
        assert!(far < 1e-9, "{name}: {far}");
    }
}

#[test]
fn an_einsum_that_sums_nothing_is_a_product_of_elements() {
    let spellings: [Spelling; 3] = [
        |s, q, _| elements(s, q, "bhsd,hd->bhsd"),
        |s, q, _| elements(s, q, "bhsd,hd->bsdh"),
        |s, q, _| elements(s, q, "bh...,hd->bh...d"),
    ];
    for spelling in spellings {
        let before = model(spelling);
        let after = plain(&before, &BTreeMap::new()).expect("it is replaced");
        assert!(!operators(&after).iter().any(|op| op == "Einsum"));
        assert!(difference(&before, &after) < 1e-9);
    }
}

#[test]
fn a_quarter_of_a_rotation_makes_a_sine_a_cosine() {
    let spellings: [(Spelling, &str); 2] = [
        (|s, q, _| wave(s, q, ["Add", "Sin"], FRAC_PI_2), "Cos"),
        (|s, q, _| wave(s, q, ["Sub", "Cos"], FRAC_PI_2), "Sin"),
    ];
    for (spelling, op) in spellings {
        let before = model(spelling);
        let after = plain(&before, &BTreeMap::new()).expect("it is replaced");
        let is = operators(&after);
        assert!(is.iter().any(|own| own == op), "{op}: {is:?}");
        // The angle is stored in single precision.
        assert!(difference(&before, &after) < 1e-7, "{op}");
    }
}

#[test]
fn numbers_tell_spellings_apart() {
    let (a, b) = (model(of_log_softmax), model(scores));
    assert!(difference(&a, &b) > 0.1);
}
