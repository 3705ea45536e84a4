//! Tables whose rows are added in another order of axes.

use posenc_ir::Model;

use crate::graph::sketch::{HIDDEN, Sketch};
use crate::request::{LawName, Request};
use crate::rewrite::rewrite;

/// A layer on tokens to which rows of a table are added while positions are before sequences.
fn positions_first() -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let x = s.transpose(&x, &[1, 0, 2]);
    let (shape, zero, one) = (s.op("Shape", &["input_ids"]), s.ints(&[0]), s.ints(&[1]));
    let length = s.gather(&shape, &one, 0);
    let table = s.weights(&[32, 1, HIDDEN]);
    let rows = s.op("Slice", &[&table, &zero, &length, &zero]);
    let x = s.op("Add", &[&x, &rows]);
    let x = s.transpose(&x, &[1, 0, 2]);
    let y = s.attends(&x, &x);
    s.model(18, &[&y])
}

#[test]
fn rows_before_sequences_are_compared() {
    let mut request = Request {
        scale: Some(LawName::Linear.into()),
        ..Request::default()
    };
    request.parameters.factor = Some(2.0);
    let mut model = positions_first();
    let done = rewrite(&mut model, &request).unwrap();
    assert_eq!(done.report.limits.before[0].length, 32);
    assert_eq!(done.report.limits.after[0].length, 64);
}
