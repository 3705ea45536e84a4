//! What meets the weights of attention behind the softmax.

use super::*;
use crate::rewrite::rewrite;

/// A layer of fixed length whose weights meet these numbers by this operator.
fn met(op: &str, dims: &[usize], number: fn(usize) -> f64) -> Model {
    let mut s = Sketch::default();
    let ids = s.input("input_ids", DType::I64, &["batch", "14"]);
    let table = s.weights(&[30, HIDDEN]);
    let x = s.op("Gather", &[&table, &ids]);
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let scores = scores(&mut s, &q, &k);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let count = dims.iter().product();
    let numbers = s.floats(dims, (0..count).map(number));
    let weights = s.op(op, &[&numbers, &weights]);
    let axes = s.ints(&[-1]);
    let sums = s.op("ReduceSum", &[&weights, &axes]);
    let weights = s.op("Div", &[&weights, &sums]);
    let y = s.op("MatMul", &[&weights, &v]);
    let y = s.merged(&y);
    s.model(17, &[&y])
}

#[test]
fn numbers_by_position_behind_the_softmax_are_an_unknown_encoding_that_stays() {
    let plane = &[1, HEADS, 14, 14][..];
    for (op, dims) in [
        ("Add", plane),
        ("Mul", plane),
        ("Add", &[14]),
        ("Mul", &[14, 1]),
    ] {
        let mut model = met(op, dims, |n| 0.1 + (n % 5) as f64);
        let read = found(&model);
        assert_eq!(read.attention.len(), 1);
        assert_eq!(kinds(&read), [Kind::Unknown], "{op} {dims:?}");
        let none = Request {
            to: Some(Kind::None),
            ..Request::default()
        };
        assert!(rewrite(&mut model, &none).is_err(), "{op} {dims:?}");
    }
}

#[test]
fn masks_and_factors_of_heads_behind_the_softmax_are_none() {
    type Numbers = fn(usize) -> f64;
    let mask: Numbers = |n| f64::from(u8::from(n % 14 <= n / 14));
    let heads: Numbers = |n| 1.0 + n as f64;
    let cases: [(&str, &[usize], Numbers); 4] = [
        ("Mul", &[14, 14], mask),
        ("Mul", &[HEADS, 1, 1], heads),
        ("Add", &[HEADS, 1, 1], heads),
        ("Add", &[14, 14], |_| 0.5),
    ];
    for (op, dims, number) in cases {
        let read = found(&met(op, dims, number));
        assert!(
            read.findings.is_empty(),
            "{op} {dims:?}: {:?}",
            read.findings
        );
    }
}
