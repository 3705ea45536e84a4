//! Sequences whose length is written in the graph.

use posenc_ir::{DType, Model};

use crate::graph::sketch::{HIDDEN, Sketch};
use crate::request::{Request, ScaleType};
use crate::rewrite::rewrite;

/// Tokens of the sequence.
const LENGTH: usize = 8;

/// What else is added to the tokens, or done to them.
type Change = fn(&mut Sketch, &str) -> String;

/// Eight tokens, with a learned table that is added whole.
fn tokens(s: &mut Sketch) -> String {
    let ids = s.input("input_ids", DType::I64, &["1", "8"]);
    let words = s.weights(&[30, HIDDEN]);
    let x = s.op("Gather", &[&words, &ids]);
    let table = s.weights(&[1, LENGTH, HIDDEN]);
    s.op("Add", &[&x, &table])
}

/// A layer on these tokens.
fn model(change: Change) -> Model {
    let mut s = Sketch::default();
    let x = tokens(&mut s);
    let x = change(&mut s, &x);
    let y = s.attends(&x, &x);
    s.model(18, &[&y])
}

/// Rows of a further table, for these numbers.
fn rows(s: &mut Sketch, x: &str, count: usize, index: &str) -> String {
    let further = s.weights(&[count, HIDDEN]);
    let rows = s.gather(&further, index, 0);
    s.op("Add", &[x, &rows])
}

/// The dimensions of the first output of the model for 12 tokens.
fn longer(model: &Model) -> Result<Vec<usize>, String> {
    let mut request = Request {
        scale: Some(ScaleType::Tile),
        ..Request::default()
    };
    request.parameters.max_length = Some(12);
    let mut model = model.clone();
    rewrite(&mut model, &request).map_err(|why| why.to_string())?;
    let graph = model.graph();
    let output = graph.scope(graph.main()).outputs()[0];
    let trace = crate::detect::detect(&model, &crate::detect::Options::default()).trace;
    Ok(trace.get(output).dims.clone().expect("known dimensions"))
}

#[test]
fn a_length_in_the_graph_follows() {
    let cases: [(&str, Change); 4] = [
        ("a table alone", |_, x| x.to_owned()),
        ("the rows of another table in their order", |s, x| {
            let index: Vec<i64> = (0..LENGTH as i64).collect();
            let index = s.ints(&index);
            rows(s, x, LENGTH, &index)
        }),
        ("the row of one type for every token", |s, x| {
            let zeros = s.ints(&[0; LENGTH]);
            rows(s, x, 2, &zeros)
        }),
        ("a reshape to the length", |s, x| {
            s.reshape(x, &[1, LENGTH as i64, HIDDEN as i64])
        }),
    ];
    for (name, change) in cases {
        let dims = longer(&model(change)).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(dims, [1, 12, HIDDEN], "{name}");
    }
}

#[test]
fn a_length_that_not_all_follows_is_refused() {
    let cases: [(&str, Change, &str); 5] = [
        (
            "the rows of another table in another order",
            |s, x| {
                let index: Vec<i64> = (0..LENGTH as i64).rev().collect();
                let index = s.ints(&index);
                rows(s, x, LENGTH, &index)
            },
            "unknown is not supported yet in a rescale",
        ),
        (
            "numbers for each token",
            |s, x| {
                let each = s.weights(&[1, LENGTH, 1]);
                s.op("Mul", &[x, &each])
            },
            "this Mul reads numbers for each token",
        ),
        (
            "the first half",
            |s, x| s.slice(x, 1, [0, 4, 1]),
            "this Slice acts along an axis",
        ),
        (
            "halves side by side",
            |s, x| {
                let y = s.reshape(x, &[1, 4, 2 * HIDDEN as i64]);
                s.reshape(&y, &[1, LENGTH as i64, HIDDEN as i64])
            },
            "nothing else in it can be rescaled",
        ),
        (
            "types by the place",
            |s, x| {
                let types = s.ints(&[0, 0, 0, 0, 1, 1, 1, 1]);
                rows(s, x, 2, &types)
            },
            "unknown is not supported yet in a rescale",
        ),
    ];
    for (name, change, says) in cases {
        let why = longer(&model(change)).expect_err(name);
        assert!(why.contains(says), "{name}: {why}");
    }
}

#[test]
fn a_cache_of_one_length_is_refused() {
    let mut s = Sketch::default();
    let x = tokens(&mut s);
    let past = s.input("past", DType::F32, &["1", "3", "5", "8"]);
    let q = s.headed(&x);
    let [k, v] = [(); 2].map(|()| s.headed(&x));
    let k = s.concat(&[&past, &k], 2);
    let v = s.concat(&[&past, &v], 2);
    let turned = s.transpose(&k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[&q, &turned]);
    let weights = s.op("Softmax", &[&scores]);
    let y = s.op("MatMul", &[&weights, &v]);
    let y = s.merged(&y);
    let why = longer(&s.model(18, &[&y, &k])).expect_err("a cache");
    assert!(why.contains("cache"), "{why}");
}
