//! Positions together with what follows from single ids.

use posenc_ir::{DType, Model};

use crate::graph::sketch::{HIDDEN, Sketch};
use crate::request::Request;
use crate::rewrite::rewrite;
use posenc_encodings::kind::Kind;

/// What is added to the tokens, of rows `[sequence, hidden]` and flags `[batch, sequence, 1]`.
type Added = fn(&mut Sketch, &str, &str) -> String;

/// One layer behind rows of a table and flags for some ids; `by` compares ids with a number.
fn model((by, id): (&str, i64), added: Added) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let (table, at) = (s.weights(&[40, HIDDEN]), s.range());
    let rows = s.gather(&table, &at, 0);
    let id = s.int(id);
    let flags = s.op(by, &["input_ids", &id]);
    let flags = s.unsqueeze(&flags, &[-1]);
    let added = added(&mut s, &rows, &flags);
    let x = s.op("Add", &[&x, &added]);
    let y = s.attends(&x, &x);
    s.model(17, &[&y])
}

/// The rows, and one row more for flags.
fn with_row(s: &mut Sketch, rows: &str, flags: &str) -> String {
    let (flags, row) = (s.cast(flags, DType::F32), s.weights(&[HIDDEN]));
    let row = s.op("Mul", &[&flags, &row]);
    s.op("Add", &[rows, &row])
}

fn normalized(s: &mut Sketch, x: &str) -> String {
    let scale = s.weights(&[HIDDEN]);
    s.op("LayerNormalization", &[x, &scale])
}

fn none() -> Request {
    Request {
        to: Some(Kind::None),
        ..Request::default()
    }
}

#[test]
fn a_row_for_some_ids_is_not_removed_with_a_position() {
    let cases: [(&str, Added); 8] = [
        ("normalized", |s, rows, flags| {
            let sum = with_row(s, rows, flags);
            normalized(s, &sum)
        }),
        ("through tanh", |s, rows, flags| {
            let sum = with_row(s, rows, flags);
            s.op("Tanh", &[&sum])
        }),
        ("through relu, and projected", |s, rows, flags| {
            let sum = with_row(s, rows, flags);
            let sum = s.op("Relu", &[&sum]);
            let w = s.weights(&[HIDDEN, HIDDEN]);
            s.op("MatMul", &[&sum, &w])
        }),
        ("clipped", |s, rows, flags| {
            let sum = with_row(s, rows, flags);
            let (least, most) = (s.float(-0.5), s.float(0.5));
            s.op("Clip", &[&sum, &least, &most])
        }),
        ("in the place of the row", |s, rows, flags| {
            let row = s.weights(&[HIDDEN]);
            s.op("Where", &[flags, &row, rows])
        }),
        ("the larger of both", |s, rows, flags| {
            let (flags, row) = (s.cast(flags, DType::F32), s.weights(&[HIDDEN]));
            let row = s.op("Mul", &[&flags, &row]);
            s.op("Max", &[rows, &row])
        }),
        ("in other features", |s, rows, flags| {
            let sum = with_row(s, rows, flags);
            let (half, all) = (HIDDEN as i64 / 2, HIDDEN as i64);
            let (flags, zero) = (s.cast(flags, DType::F32), s.float(0.0));
            let zero = s.op("Mul", &[&flags, &zero]);
            let first = s.op("Add", &[rows, &zero]);
            let first = s.slice(&first, -1, [0, half, 1]);
            let second = s.slice(&sum, -1, [half, all, 1]);
            s.concat(&[&first, &second], -1)
        }),
        ("the rows changed by a factor", |s, rows, flags| {
            let flags = s.cast(flags, DType::F32);
            let one = s.float(1.0);
            let factor = s.op("Add", &[&flags, &one]);
            let changed = s.op("Mul", &[rows, &factor]);
            s.op("Tanh", &[&changed])
        }),
    ];
    for (name, added) in cases {
        for compared in [("Equal", 1), ("Equal", 29), ("Greater", 20)] {
            let mut model = model(compared, added);
            let why = rewrite(&mut model, &none()).map(|_| ()).unwrap_err();
            let why = why.to_string();
            assert!(
                why.contains("cannot separate the encoding"),
                "{name}, {compared:?}: {why}"
            );
        }
    }
}

#[test]
fn positions_that_some_ids_skip_are_removed() {
    let cases: [(&str, Added); 4] = [
        ("whatever the ids", |s, rows, _| normalized(s, rows)),
        ("no row for some ids", |s, rows, flags| {
            let zero = s.float(0.0);
            s.op("Where", &[flags, &zero, rows])
        }),
        ("times what is 0 for them", |s, rows, flags| {
            let others = s.op("Not", &[flags]);
            let others = s.cast(&others, DType::F32);
            s.op("Mul", &[rows, &others])
        }),
        ("a row of the table for them", |s, _, flags| {
            let (table, at) = (s.weights(&[40, HIDDEN]), s.range());
            let three = s.int(3);
            let flags = s.op("Squeeze", &[flags]);
            let at = s.op("Where", &[&flags, &three, &at]);
            s.gather(&table, &at, 0)
        }),
    ];
    for (name, added) in cases {
        let mut model = model(("Equal", 1), added);
        let done = rewrite(&mut model, &none());
        let done = done.unwrap_or_else(|why| panic!("{name}: {why}"));
        assert!(!done.report.edits.is_empty(), "{name}");
    }
}
