//! Near the spellings that rules replace, and something else.

use std::collections::BTreeMap;

use posenc_ir::DType;

use super::super::plain;
use super::Spelling;
use super::{chosen, model, quotient, reduced, scores, thrice, twice, with_zeros};
use crate::graph::sketch::{A, HEADS, SIZE, Sketch};

const OTHERS: [(&str, Spelling); 14] = [
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

#[test]
fn what_computes_something_else_stays() {
    for (name, spelling) in OTHERS {
        let before = model(spelling);
        assert!(plain(&before, &BTreeMap::new()).is_none(), "{name}");
    }
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
