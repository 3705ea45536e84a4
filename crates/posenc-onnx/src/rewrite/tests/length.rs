//! Sequences whose length is written in the graph.

use posenc_encodings::kind::Kind;
use posenc_ir::eval::Budget;
use posenc_ir::{DType, Model};

use crate::detect::{Options, detect, run_at};
use crate::graph::ports::Lengths;
use crate::graph::sketch::{HIDDEN, Sketch};
use crate::prove::testing::fixture;
use crate::report::LimitCause;
use crate::request::{LawName, Request, ScaleType};
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
    let found = detect(&model, &Options::default());
    let at = Lengths {
        batch: 1,
        sequence: 12,
        past: 0,
    };
    let budget = Budget { elements: 1 << 16 };
    let run = run_at(&model, &found, at, &budget).expect("any length");
    Ok(run.get(output).dims.clone().expect("known dimensions"))
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

/// What is counted from the last token: an index, and the end of a slice.
#[test]
fn what_is_counted_from_the_end_follows() {
    type Head = fn(&mut Sketch, &str) -> String;
    let of = |head: Head| {
        let mut s = Sketch::default();
        let x = tokens(&mut s);
        let y = s.attends(&x, &x);
        let y = head(&mut s, &y);
        longer(&s.model(18, &[&y]))
    };
    let last = of(|s, y| {
        let last = s.int(-1);
        s.gather(y, &last, 1)
    });
    assert_eq!(last, Ok(vec![1, HIDDEN]));
    assert!(of(|s, y| s.slice(y, 1, [0, -1, 1])).is_ok());
    for counted in [
        of(|s, y| {
            let eighth = s.int(LENGTH as i64 - 1);
            s.gather(y, &eighth, 1)
        }),
        of(|s, y| s.slice(y, 1, [0, LENGTH as i64 - 1, 1])),
    ] {
        let why = counted.unwrap_err();
        assert!(
            why.contains("acts along an axis that follows the sequence"),
            "{why}"
        );
    }
}

/// The shapes of an export for 12 tokens, which are rotated.
#[test]
fn a_length_that_rotated_tokens_follow_is_no_limit_any_more() {
    for (max_length, scale) in [
        (40, None),
        (40, Some(LawName::Linear)),
        (7, Some(LawName::Yarn)),
    ] {
        let mut request = Request {
            scale: scale.map(ScaleType::Law),
            ..Request::default()
        };
        request.parameters.max_length = Some(max_length);
        request.parameters.factor = scale.map(|_| 2.0);
        let done = rewrite(&mut fixture("llama/dynamo-static"), &request).unwrap();
        let [before, after] = [&done.report.limits.before, &done.report.limits.after];
        assert_eq!(before[0].cause, LimitCause::StaticShape);
        let longest = after.first().map(|limit| limit.length);
        assert_eq!(longest, Some(max_length.max(12)), "{scale:?}");
        assert!(!done.respelled.is_empty(), "both are compared at 12 tokens");
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
            "at other lengths than that of the graph is not known",
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
            "reads numbers for each token",
        ),
        (
            "types by the place",
            |s, x| {
                let types = s.ints(&[0, 0, 0, 0, 1, 1, 1, 1]);
                rows(s, x, 2, &types)
            },
            "one row is added to all tokens of a part of the sequence",
        ),
    ];
    for (name, change, says) in cases {
        let why = longer(&model(change)).expect_err(name);
        assert!(why.contains(says), "{name}: {why}");
    }
}

/// Where an encoding is replaced, the length of a graph follows where it can, and stays where it cannot.
#[test]
fn a_graph_whose_length_stays_gets_another_encoding() {
    let split: Change = |s, x| s.slice(x, 1, [0, LENGTH as i64, 2]);
    let cases: [(Change, Option<&str>); 2] = [
        (|_, x| x.to_owned(), None),
        (split, Some("still ends at 8")),
    ];
    for (after, says) in cases {
        let mut s = Sketch::default();
        let x = tokens(&mut s);
        let y = s.attends(&x, &x);
        let y = after(&mut s, &y);
        let mut model = s.model(18, &[&y]);
        let mut request = Request {
            to: Some(Kind::Alibi),
            ..Request::default()
        };
        request.parameters.max_length = Some(12);
        let done = rewrite(&mut model, &request).expect("a swap");
        let mut warnings = done.report.warnings.iter();
        let stays = warnings.find(|text| text.contains("still ends"));
        assert_eq!(stays.is_some(), says.is_some(), "{stays:?}");
        assert!(stays.is_none_or(|text| says.is_some_and(|says| text.contains(says))));
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

#[test]
fn why_a_scaling_is_refused_is_said() {
    let refused = |name: &str, scale: ScaleType, factor: f64| {
        let mut request = Request {
            scale: Some(scale),
            ..Request::default()
        };
        request.parameters.factor = Some(factor);
        let done = rewrite(&mut fixture(name), &request);
        done.err().map(|why| why.to_string())
    };
    let linear = ScaleType::from(LawName::Linear);
    assert_eq!(refused("mini/learned", linear, 8.0), None);
    let why = refused("mini/learned", linear, 32.0).unwrap();
    assert!(
        why.contains("the first 16 positions would get one row"),
        "{why}"
    );
    let why = refused("mini/t5", ScaleType::Cubic, 2.0).unwrap();
    assert!(why.contains("t5-bias takes linear"), "{why}");
}

#[test]
fn a_table_of_as_many_rows_as_features_is_cut_along_its_rows() {
    let mut s = Sketch::default();
    let x = s.embedded();
    let table = s.weights(&[HIDDEN, HIDDEN]);
    let (shape, zero, one) = (s.op("Shape", &["input_ids"]), s.ints(&[0]), s.ints(&[1]));
    let length = s.gather(&shape, &one, 0);
    let rows = s.op("Slice", &[&table, &zero, &length, &zero]);
    let x = s.op("Add", &[&x, &rows]);
    let y = s.attends(&x, &x);
    let mut model = s.model(18, &[&y]);
    let mut request = Request {
        scale: Some(ScaleType::Tile),
        ..Request::default()
    };
    request.parameters.max_length = Some(2 * HIDDEN);
    let done = rewrite(&mut model, &request).unwrap();
    assert_eq!(done.found.findings[0].max_length, Some(2 * HIDDEN));
}
