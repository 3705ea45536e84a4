//! Buffers and lengths of models whose encoding is replaced.

use posenc_encodings::kind::Kind;
use posenc_ir::DType;
use posenc_ir::Model;

use crate::graph::sketch::{A, HIDDEN, Sketch};
use crate::request::Request;
use crate::rewrite::rewrite;

/// A model of two layers that cut one causal buffer of 16 tokens.
fn model() -> Model {
    let mut s = Sketch::default();
    let mut x = s.embedded();
    let rows = s.weights(&[16, HIDDEN]);
    let lower = (0..256).map(|i| f64::from(u8::from(i % 16 <= i / 16)));
    let buffer = s.typed(DType::Bool, &[1, 1, 16, 16], lower);
    let shape = s.op("Shape", &[&x]);
    let one = s.ints(&[1]);
    let length = s.gather(&shape, &one, 0);
    let zero = s.ints(&[0]);
    let rows = s.op("Slice", &[&rows, &zero, &length, &zero]);
    x = s.op("Add", &[&x, &rows]);
    let axes = [s.ints(&[2]), s.ints(&[3])];
    let seen = s.op("Slice", &[&buffer, &zero, &length, &axes[0]]);
    let seen = s.op("Slice", &[&seen, &zero, &length, &axes[1]]);
    for _ in 0..2 {
        let [q, k, v] = [0; 3].map(|_| s.headed(&x));
        let k = s.transpose(&k, &[0, 1, 3, 2]);
        let scores = s.op("MatMul", &[&q, &k]);
        let low = s.float(-1e9);
        let scores = s.op("Where", &[&seen, &scores, &low]);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = s.op("MatMul", &[&weights, &v]);
        let y = s.merged(&y);
        x = s.op("Add", &[&x, &y]);
    }
    s.model(17, &[&x])
}

#[test]
fn buffers_that_were_made_longer_are_counted_once() {
    for (wanted, count) in [(None, 0), (Some(10), 0), (Some(40), 1)] {
        let mut request = Request {
            to: Some(Kind::Rope),
            ..Request::default()
        };
        request.parameters.max_length = wanted;
        let done = rewrite(&mut model(), &request).unwrap();
        let changed = done.report.edits.iter().map(|e| e.initializers_changed);
        let changed: Vec<usize> = changed.collect();
        assert_eq!(changed, [count, 0], "{wanted:?}");
    }
}

#[test]
fn a_length_beyond_any_buffer_is_refused() {
    for kind in [Kind::Rope, Kind::Alibi, Kind::Learned, Kind::Sinusoidal] {
        for wanted in [1_000_000_000_000, usize::MAX] {
            let mut request = Request {
                to: Some(kind),
                ..Request::default()
            };
            request.parameters.max_length = Some(wanted);
            let why = rewrite(&mut model(), &request).unwrap_err();
            let why = why.to_string();
            assert!(why.starts_with("`max-length` is"), "{kind}: {why}");
        }
    }
    let mut request = Request {
        to: Some(Kind::Learned),
        ..Request::default()
    };
    request.parameters.max_length = Some(100_000_000);
    let why = rewrite(&mut model(), &request).unwrap_err().to_string();
    assert!(why.contains("a table of [100000000, 24]"), "{why}");
}
