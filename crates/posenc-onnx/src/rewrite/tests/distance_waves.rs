//! Stored sinusoids of the distance that go on.

use posenc_ir::Model;

use crate::graph::sketch::{A, HEADS, HIDDEN, SIZE, Sketch};
use crate::request::Request;
use crate::rewrite::{Rewritten, rewrite};

/// Tokens for which the table was made, and those that are asked for.
const TOKENS: usize = 16;
const LONGER: usize = 40;

/// A number of a code: sines, then cosines of the distance query − key.
fn wave(distance: f64, column: usize) -> f64 {
    let half = HIDDEN / 2;
    let angle = distance * 1e4_f64.powf(-2.0 * (column % half) as f64 / HIDDEN as f64);
    if column < half {
        angle.sin()
    } else {
        angle.cos()
    }
}

/// A layer of attention whose queries meet projected sinusoids, which are cut out of a table from the row
/// that `start` makes of the length; it may name another output.
fn layer(start: fn(&mut Sketch, &str) -> (String, Option<String>)) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let k = s.transpose(&k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[&q, &k]);
    let at = s.range();
    let length = s.op("Shape", &[&at]);
    let (start, other) = start(&mut s, &length);
    let [center, axis] = [TOKENS as i64 - 1, 0].map(|n| s.ints(&[n]));
    let end = s.op("Add", &[&center, &length]);
    let rows = 2 * TOKENS - 1;
    let far = TOKENS as f64 - 1.0;
    let codes = (0..rows * HIDDEN).map(|i| wave(far - (i / HIDDEN) as f64, i % HIDDEN));
    let codes = s.floats(&[rows, HIDDEN], codes.collect::<Vec<f64>>());
    let codes = s.op("Slice", &[&codes, &start, &end, &axis]);
    let w = s.weights(&[HIDDEN, HIDDEN]);
    let vectors = s.op("MatMul", &[&codes, &w]);
    let vectors = s.reshape(&vectors, &[-1, HEADS as i64, SIZE as i64]);
    let vectors = s.transpose(&vectors, &[1, 2, 0]);
    let bias = s.weights(&[HEADS, 1, SIZE]);
    let biased = s.op("Add", &[&q, &bias]);
    let all = s.op("MatMul", &[&biased, &vectors]);
    let (queries, keys) = (s.unsqueeze(&at, &[1]), s.unsqueeze(&at, &[0]));
    let d = s.op("Sub", &[&keys, &queries]);
    let one = s.int(1);
    let index = s.op("Add", &[&d, &length]);
    let index = s.op("Sub", &[&index, &one]);
    let shape = s.op("Shape", &[&scores]);
    let index = s.op("Expand", &[&index, &shape]);
    let term = s.with("GatherElements", &[&all, &index], &[("axis", A::Int(-1))]);
    let scores = s.op("Add", &[&scores, &term]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    let y = s.merged(&y);
    let outputs: Vec<&str> = [&y].into_iter().chain(&other).map(String::as_str).collect();
    s.model(18, &outputs)
}

/// The row from which a table is cut: the middle less the length, plus one.
fn middle(s: &mut Sketch, length: &str) -> String {
    let [center, one] = [TOKENS as i64 - 1, 1].map(|n| s.ints(&[n]));
    let start = s.op("Sub", &[&center, length]);
    s.op("Add", &[&start, &one])
}

fn longer(model: &Model) -> Result<Rewritten, String> {
    let mut request = Request::default();
    request.parameters.max_length = Some(LONGER);
    rewrite(&mut model.clone(), &request).map_err(|why| why.to_string())
}

/// The codes of a model, by their number of rows.
fn codes(model: &Model, rows: usize) -> Option<Vec<f64>> {
    let graph = model.graph();
    let is_table = |v: &posenc_ir::ValueId| {
        graph
            .stored(*v)
            .is_some_and(|stored| stored.dims == [rows, HIDDEN])
    };
    let table = graph.values().find(is_table)?;
    graph.constant(table)?.to_f64s()
}

#[test]
fn sinusoids_go_on_at_both_ends_and_keep_their_rows() {
    let model = layer(|s, length| (middle(s, length), None));
    let before = codes(&model, 2 * TOKENS - 1).expect("a table");
    let made = longer(&model).unwrap_or_else(|why| panic!("{why}"));
    let after = codes(&made.model, 2 * LONGER - 1).expect("a longer table");
    let added = (LONGER - TOKENS) * HIDDEN;
    assert_eq!(after[added..][..before.len()], before[..]);
    for (i, got) in after.iter().enumerate() {
        let distance = LONGER as f64 - 1.0 - (i / HIDDEN) as f64;
        assert!((got - wave(distance, i % HIDDEN)).abs() < 1e-6, "{i}");
    }
    let ends = |limits: &[crate::report::Limit]| limits.iter().map(|l| l.length).min();
    assert_eq!(ends(&made.report.limits.before), Some(TOKENS));
    assert_eq!(ends(&made.report.limits.after), Some(LONGER));
}

#[test]
fn a_number_of_tokens_may_be_a_quotient() {
    let model = layer(|s, length| {
        let two = s.ints(&[2]);
        let samples = s.op("Mul", &[length, &two]);
        let tokens = s.op("Div", &[&samples, &two]);
        (middle(s, &tokens), None)
    });
    let made = longer(&model).unwrap_or_else(|why| panic!("{why}"));
    let after = codes(&made.model, 2 * LONGER - 1).expect("a longer table");
    let far = LONGER as f64 - 1.0;
    let wanted = |i: usize| wave(far - (i / HIDDEN) as f64, i % HIDDEN);
    assert!((0..after.len()).all(|i| (after[i] - wanted(i)).abs() < 1e-6));
}

#[test]
fn a_cut_that_cannot_be_followed_is_refused() {
    let given = layer(|s, length| {
        let start = middle(s, length);
        (start.clone(), Some(start))
    });
    let twice = layer(|s, length| {
        let (start, two) = (middle(s, length), s.ints(&[2]));
        let start = s.op("Mul", &[&start, &two]);
        (s.op("Div", &[&start, &two]), None)
    });
    for (name, model, says) in [
        ("an output", given, "is an output"),
        (
            "another operator",
            twice,
            "how the rows follow from the length",
        ),
    ] {
        let why = longer(&model).err().unwrap_or_else(|| panic!("{name}"));
        assert!(why.contains(says), "{name}: {why}");
    }
}
