//! Near the spellings that rules replace, and something else.

use std::collections::BTreeMap;
use std::f64::consts::FRAC_PI_2;

use posenc_ir::DType;

use super::super::plain;
use super::Spelling;
use super::{
    by_weights, chosen, elements, model, quotient, reduced, repeated, scores, thrice, twice, wave,
    with_zeros,
};
use crate::graph::sketch::{A, HEADS, SIZE, Sketch};

const OTHERS: [(&str, Spelling); 21] = [
    ("a sine that is moved back", |s, q, _| {
        wave(s, q, ["Sub", "Sin"], FRAC_PI_2)
    }),
    ("a cosine that is moved on", |s, q, _| {
        wave(s, q, ["Add", "Cos"], FRAC_PI_2)
    }),
    ("a sine that is moved by less", |s, q, _| {
        wave(s, q, ["Add", "Sin"], 1.57)
    }),
    ("the logarithm of another sum", |s, q, k| {
        let (x, other) = (scores(s, q, k), scores(s, k, q));
        let log = reduced(s, "ReduceLogSumExp", &other);
        let x = s.op("Sub", &[&x, &log]);
        s.op("Exp", &[&x])
    }),
    ("a quotient of other exponentials", |s, q, k| {
        let (a, b) = (scores(s, q, k), scores(s, k, q));
        let (a, b) = (s.op("Exp", &[&a]), s.op("Exp", &[&b]));
        let (less, sum) = (reduced(s, "ReduceMax", &a), reduced(s, "ReduceSum", &b));
        let a = s.op("Sub", &[&a, &less]);
        s.op("Div", &[&a, &sum])
    }),
    ("a softmax of rows that are longer", |s, q, k| {
        let x = scores(s, q, k);
        let shape = s.op("Shape", &[&x]);
        let rows = s.reshape(&x, &[HEADS as i64, -1]);
        let weights = s.with("Softmax", &[&rows], &[("axis", A::Int(-1))]);
        s.op("Reshape", &[&weights, &shape])
    }),
    ("a softmax between other transpositions", |s, q, k| {
        let x = scores(s, q, k);
        let x = s.transpose(&x, &[1, 2, 3, 0]);
        let x = s.with("Softmax", &[&x], &[("axis", A::Int(-1))]);
        s.transpose(&x, &[1, 2, 3, 0])
    }),
    ("a sum of products over another axis", |s, q, k| {
        let (q, k) = (s.unsqueeze(q, &[-2]), s.unsqueeze(k, &[-3]));
        let all = s.op("Mul", &[&q, &k]);
        let axis = s.ints(&[1]);
        s.with("ReduceSum", &[&all, &axis], &[("keepdims", A::Int(0))])
    }),
    (
        "a sum of products with weights of one feature",
        |s, q, _| {
            let weights = s.weights(&[1, 1, SIZE]);
            by_weights(s, q, &weights)
        },
    ),
    ("sums that leave something out", |s, q, k| {
        let k = s.transpose(k, &[0, 1, 3, 2]);
        let parts = [[0, 3, 1], [4, SIZE as i64, 1]].map(|range| {
            let (a, b) = (s.slice(q, 3, range), s.slice(&k, 2, range));
            s.op("MatMul", &[&a, &b])
        });
        s.op("Add", &[&parts[0], &parts[1]])
    }),
    ("sums of other halves", |s, q, k| {
        let k = s.transpose(k, &[0, 1, 3, 2]);
        let halves = [[0, 4, 1], [4, SIZE as i64, 1]];
        let parts = [0, 1].map(|i| {
            let (a, b) = (s.slice(q, 3, halves[i]), s.slice(&k, 2, halves[1 - i]));
            s.op("MatMul", &[&a, &b])
        });
        s.op("Add", &[&parts[0], &parts[1]])
    }),
    ("chunks in another order", |s, q, k| {
        let k = s.transpose(k, &[0, 1, 3, 2]);
        let parts = [[4, i64::MAX, 1], [0, 4, 1]].map(|range| {
            let rows = s.slice(q, 2, range);
            s.op("MatMul", &[&rows, &k])
        });
        s.concat(&[&parts[0], &parts[1]], -2)
    }),
    ("heads in another order", |s, q, k| {
        let k = s.transpose(k, &[0, 1, 3, 2]);
        let mut parts = vec![];
        for head in [1, 0, 2] {
            let at = s.int(head);
            let (a, b) = (s.gather(q, &at, 1), s.gather(&k, &at, 1));
            let product = s.op("MatMul", &[&a, &b]);
            parts.push(s.unsqueeze(&product, &[1]));
        }
        s.concat(&[&parts[0], &parts[1], &parts[2]], 1)
    }),
    ("one operand reversed", |s, q, k| {
        let k = s.transpose(k, &[0, 1, 3, 2]);
        let q = s.slice(q, -1, [-1, -(1 << 62), -1]);
        s.op("MatMul", &[&q, &k])
    }),
    ("a GatherND of rows in each batch", |s, q, _| {
        let places = s.ints(&[0]);
        let shape = s.op("Shape", &[q]);
        let first = s.slice(&shape, 0, [0, 2, 1]);
        let two = s.ints(&[2, 1]);
        let wide = s.concat(&[&first, &two], 0);
        let places = s.op("Expand", &[&places, &wide]);
        s.with("GatherND", &[q, &places], &[("batch_dims", A::Int(2))])
    }),
    ("an Einsum of elements that sums", |s, q, _| {
        elements(s, q, "bhsd,hd->bhs")
    }),
    ("an Einsum of a diagonal", |s, q, k| {
        let x = scores(s, q, k);
        s.with(
            "Einsum",
            &[&x, q],
            &[("equation", A::Text("bhss,bhsd->bhsd"))],
        )
    }),
    ("an Einsum that sums", |s, q, _| {
        s.with("Einsum", &[q], &[("equation", A::Text("bhsd->bhd"))])
    }),
    ("padded values that overlap", |s, q, k| {
        let size = SIZE as i64;
        let a = with_zeros(s, q, 0, size - 2);
        let b = with_zeros(s, k, size - 2, 0);
        s.op("Add", &[&a, &b])
    }),
    ("an If with other branches", |s, _, _| {
        chosen(s, false, [twice, thrice])
    }),
    ("rows by pairs of indices", |s, _, _| {
        let table = s.weights(&[30, 30, 4]);
        let indices = s.unsqueeze("input_ids", &[-1]);
        let indices = s.concat(&[&indices, &indices], -1);
        s.op("GatherND", &[&table, &indices])
    }),
];

/// A constant that is an input with a default, in whose place another may be fed.
fn open(s: &mut Sketch, constant: &str, dtype: DType, dims: &[&str]) {
    s.input(constant, dtype, dims);
}

/// Spellings that hold for some sizes, types or numbers only.
const BY_CHANCE: [(&str, Spelling); 15] = [
    ("a condition from a default", |s, _, _| {
        let (few, one) = (s.int(6), s.int(1));
        open(s, &few, DType::I64, &[]);
        let condition = s.op("Greater", &[&one, &few]);
        s.choice(&condition, [twice, thrice])
    }),
    ("a default of zeros beside padded values", |s, q, k| {
        let (fill, size) = (s.float(0.0), SIZE as i64);
        open(s, &fill, DType::F32, &[]);
        let pads = [[0, size], [size, 0]].map(|[a, b]| s.ints(&[0, 0, 0, a, 0, 0, 0, b]));
        let a = s.op("Pad", &[q, &pads[0], &fill]);
        let b = s.op("Pad", &[k, &pads[1], &fill]);
        s.op("Add", &[&a, &b])
    }),
    ("reversed along an axis by default", |s, q, k| {
        let k = s.transpose(k, &[0, 1, 3, 2]);
        let [back, end] = [-1, -(1 << 62)].map(|n| s.ints(&[n]));
        let axes = [3, 2].map(|n| s.ints(&[n]));
        open(s, &back, DType::I64, &["1"]);
        let q = s.op("Slice", &[q, &back, &end, &axes[0], &back]);
        let k = s.op("Slice", &[&k, &back, &end, &axes[1], &back]);
        s.op("MatMul", &[&q, &k])
    }),
    ("a table whose piece is a default", |s, _, _| {
        let pieces = [3, 5].map(|n| s.weights(&[30, n]));
        open(s, &pieces[0], DType::F32, &["30", "3"]);
        let table = s.concat(&[&pieces[0], &pieces[1]], 1);
        s.gather(&table, "input_ids", 0)
    }),
    ("columns whose part is a default", |s, q, _| {
        let weights = [3, 5].map(|n| s.weights(&[SIZE, n]));
        open(s, &weights[1], DType::F32, &["8", "5"]);
        let parts = [0, 1].map(|i| s.op("MatMul", &[q, &weights[i]]));
        s.concat(&[&parts[0], &parts[1]], -1)
    }),
    ("a quotient of integers", |s, q, k| {
        let x = scores(s, q, k);
        let exp = s.op("Exp", &[&x]);
        let whole = s.cast(&exp, DType::I32);
        let whole = s.cast(&whole, DType::F32);
        let sum = reduced(s, "ReduceSum", &exp);
        s.op("Div", &[&whole, &sum])
    }),
    ("a quotient that is rounded between", |s, q, k| {
        let x = scores(s, q, k);
        let exp = s.op("Exp", &[&x]);
        let short = s.cast(&exp, DType::F16);
        let short = s.cast(&short, DType::F32);
        let sum = reduced(s, "ReduceSum", &short);
        s.op("Div", &[&exp, &sum])
    }),
    ("padded pictures of an open size", |s, _, _| {
        let x = s.input("pixel_values", DType::F32, &["n", "3", "height", "width"]);
        let (a, b) = (with_zeros(s, &x, 0, 64), with_zeros(s, &x, 64, 0));
        s.op("Add", &[&a, &b])
    }),
    (
        "padded parts of a sequence that may be shorter",
        |s, q, k| {
            let [a, b] = [(q, [0, 8]), (k, [8, 0])].map(|(x, [before, after])| {
                let part = s.slice(x, 2, [0, 8, 1]);
                let pads = s.ints(&[0, 0, before, 0, 0, 0, after, 0]);
                s.op("Pad", &[&part, &pads])
            });
            s.op("Add", &[&a, &b])
        },
    ),
    ("rows times a vector", |s, q, _| {
        let (rows, vector) = (s.transpose(q, &[2, 0, 1, 3]), s.weights(&[SIZE]));
        let parts = [[0, 1, 1], [1, 2, 1], [2, 3, 1]].map(|range| {
            let row = s.slice(&rows, 2, range);
            s.op("MatMul", &[&row, &vector])
        });
        s.concat(&[&parts[0], &parts[1], &parts[2]], -2)
    }),
    ("a sum of products with one feature", |s, q, k| {
        let k = s.slice(k, 3, [0, 1, 1]);
        repeated(s, q, &k, [-2, -3, -1])
    }),
    ("a sum with a single column", |s, q, _| {
        let parts = [([0, 3, 1], [3, 4]), ([3, 8, 1], [5, 1])].map(|(range, dims)| {
            let (part, weight) = (s.slice(q, 3, range), s.weights(&dims));
            s.op("MatMul", &[&part, &weight])
        });
        s.op("Add", &[&parts[0], &parts[1]])
    }),
    ("padded values of one head", |s, q, k| {
        let size = SIZE as i64;
        let k = s.slice(k, 1, [0, 1, 1]);
        let (a, b) = (with_zeros(s, q, 0, size), with_zeros(s, &k, size, 0));
        s.op("Add", &[&a, &b])
    }),
    ("more zeros than can be counted", |s, q, k| {
        let (a, b) = (
            with_zeros(s, q, 0, i64::MAX),
            with_zeros(s, k, i64::MAX, i64::MAX),
        );
        s.op("Add", &[&a, &b])
    }),
    ("a table without elements", |s, _, _| {
        let pieces = [0; 5].map(|_| s.floats(&[1 << 40, 0], []));
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        s.concat(&pieces, 1)
    }),
];

#[test]
fn what_computes_something_else_stays() {
    let all = OTHERS.iter().chain(&BY_CHANCE);
    let replaced = all.filter(|(_, spelling)| plain(&model(*spelling), &BTreeMap::new()).is_some());
    let replaced: Vec<&str> = replaced.map(|(name, _)| *name).collect();
    assert!(replaced.is_empty(), "{replaced:?}");
}

#[test]
fn the_quotient_that_is_read_stays() {
    let written = model(|s, q, k| {
        let x = scores(s, q, k);
        let exp = s.op("Exp", &[&x]);
        let sum = reduced(s, "ReduceSum", &exp);
        s.op("Div", &[&exp, &sum])
    });
    assert!(plain(&written, &BTreeMap::new()).is_none());
    let shifted = model(|s, q, k| quotient(s, q, k, false));
    assert!(plain(&shifted, &BTreeMap::new()).is_some());
}

#[test]
fn older_operators_stay() {
    let mut s = Sketch::default();
    let x = s.embedded();
    let x = s.with("LogSoftmax", &[&x], &[("axis", A::Int(1))]);
    let x = s.op("Exp", &[&x]);
    assert!(plain(&s.model(11, &[&x]), &BTreeMap::new()).is_none());
    let mut s = Sketch::default();
    let x = s.input("x", DType::F32, &["batch", "4"]);
    let x = s.with("Einsum", &[&x], &[("equation", A::Text("ij->ji"))]);
    assert!(plain(&s.model(12, &[&x]), &BTreeMap::new()).is_none());
}
