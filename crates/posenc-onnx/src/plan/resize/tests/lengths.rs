//! Graphs of one length, opened for others.

use posenc_ir::{DType, Dim, Model};

use crate::graph::sketch::{A, HEADS, HIDDEN, SIZE, Sketch};
use crate::request::Request;
use crate::rewrite::plan;

/// The length that is written in the graph.
const LENGTH: usize = 12;
const ROWS: i64 = LENGTH as i64;

/// What is done to the tokens before attention, to the scores, or to what attention gives.
type Change = fn(&mut Sketch, &str) -> String;

fn same(_: &mut Sketch, x: &str) -> String {
    x.to_owned()
}

/// The numbers that a mask adds to scores of this head, query and key.
type Added = fn([usize; 3]) -> f64;

fn causal([_, query, key]: [usize; 3]) -> f64 {
    if key > query { -1e4 } else { 0.0 }
}

/// ALiBi with the slopes ½, ¼ and ⅛.
fn alibi(at: [usize; 3]) -> f64 {
    let slope = 0.5_f64.powi(at[0] as i32 + 1);
    -slope * at[1].abs_diff(at[2]) as f64
}

/// The first token, and the sum of all.
fn pooled(s: &mut Sketch, y: &str) -> String {
    let (first, axes) = (s.int(0), s.ints(&[1]));
    let first = s.gather(y, &first, 1);
    let sum = s.with("ReduceSum", &[y, &axes], &[("keepdims", A::Int(0))]);
    s.op("Add", &[&first, &sum])
}

/// The token with the id 7 of each sequence, by its place among the tokens of all.
fn picked_by_id(s: &mut Sketch, y: &str) -> String {
    let (id, dims, one) = (s.int(7), s.op("Shape", &["input_ids"]), s.int(1));
    let is_it = s.op("Equal", &["input_ids", &id]);
    let is_it = s.cast(&is_it, DType::I64);
    let place = s.with(
        "ArgMax",
        &[&is_it],
        &[("axis", A::Int(1)), ("keepdims", A::Int(0))],
    );
    let (sequences, length) = (s.ints(&[0, 1]), s.gather(&dims, &one, 0));
    let first = s.op("Mul", &[&sequences, &length]);
    let place = s.op("Add", &[&first, &place]);
    let rows = s.reshape(y, &[-1, HIDDEN as i64]);
    s.gather(&rows, &place, 0)
}

/// Numbers `[1, heads, 12, 12]` that are added to scores.
fn added(s: &mut Sketch, heads: usize, added: Added) -> String {
    let numbers = (0..heads * LENGTH * LENGTH)
        .map(move |i| added([i / (LENGTH * LENGTH), i / LENGTH % LENGTH, i % LENGTH]));
    s.floats(&[1, heads, LENGTH, LENGTH], numbers)
}

/// A layer of two sequences of 12 tokens, with shapes as numbers.
fn model(before: Change, scores: Change, after: Change) -> Model {
    let mut s = Sketch::default();
    let ids = s.input("input_ids", DType::I64, &["2", "12"]);
    let words = s.weights(&[30, HIDDEN]);
    let x = s.op("Gather", &[&words, &ids]);
    let x = before(&mut s, &x);
    let [q, k, v] = [(); 3].map(|()| {
        let w = s.weights(&[HIDDEN, HIDDEN]);
        let y = s.op("MatMul", &[&x, &w]);
        let y = s.reshape(&y, &[2, ROWS, HEADS as i64, SIZE as i64]);
        s.transpose(&y, &[0, 2, 1, 3])
    });
    let k = s.transpose(&k, &[0, 1, 3, 2]);
    let y = s.op("MatMul", &[&q, &k]);
    let root = s.float((SIZE as f64).sqrt());
    let y = s.op("Div", &[&y, &root]);
    let y = scores(&mut s, &y);
    let y = s.with("Softmax", &[&y], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&y, &v]);
    let y = s.transpose(&y, &[0, 2, 1, 3]);
    let y = s.reshape(&y, &[2, ROWS, HIDDEN as i64]);
    let y = s.op("Add", &[&x, &y]);
    let y = after(&mut s, &y);
    s.model(17, &[&y])
}

/// A learned row is added to each token.
fn learned(s: &mut Sketch, x: &str) -> String {
    let table = s.weights(&[1, LENGTH, HIDDEN]);
    s.op("Add", &[x, &table])
}

/// A learned row is picked from more rows and added to each token.
fn picked(s: &mut Sketch, x: &str) -> String {
    let table = s.weights(&[40, HIDDEN]);
    let positions = s.typed(DType::I64, &[1, LENGTH], (0..LENGTH).map(|n| n as f64));
    let rows = s.op("Gather", &[&table, &positions]);
    s.op("Add", &[x, &rows])
}

fn masked(s: &mut Sketch, x: &str) -> String {
    let mask = added(s, 1, causal);
    s.op("Add", &[x, &mask])
}

/// The model for this length.
fn lengthened(model: &Model, length: usize, scale: bool) -> Result<Model, String> {
    let mut request = Request::default();
    request.parameters.max_length = Some(length);
    request.scale = scale.then(|| crate::request::LawName::Linear.into());
    request.allowances.allow_unread = true;
    let done = plan(model, request, &[]).and_then(|planned| planned.apply());
    done.map(|done| done.model)
        .map_err(|error| error.to_string())
}

/// Every number of tokens that is still written in the graph, in a constant or a declaration.
fn written(model: &Model) -> Vec<String> {
    let graph = model.graph();
    let declared = graph.values().filter(|v| {
        let dims = graph.value(*v).shape().unwrap_or_default();
        dims.contains(&Dim::Known(LENGTH)) && graph.constant(*v).is_none()
    });
    let counted = graph.values().filter(|v| {
        let is_read = !graph.uses(*v).is_empty();
        let numbers = graph.constant(*v).and_then(|t| t.to_i64s());
        is_read && numbers.is_some_and(|all| all.contains(&ROWS))
    });
    declared
        .chain(counted)
        .map(|v| graph.name(v).to_owned())
        .collect()
}

#[test]
fn sizes_positions_and_masks_follow() {
    let cases: [(&str, Change, Change, bool); 5] = [
        ("sizes alone", same, same, false),
        ("a mask", same, masked, false),
        ("rows that are picked", picked, masked, false),
        ("rows that are added", learned, masked, true),
        (
            "slopes",
            same,
            |s, x| {
                let x = masked(s, x);
                let bias = added(s, HEADS, alibi);
                s.op("Add", &[&x, &bias])
            },
            false,
        ),
    ];
    let heads: [Change; 3] = [same, pooled, picked_by_id];
    let cases = cases
        .iter()
        .flat_map(|case| heads.map(|after| (case, after)));
    for ((what, before, scores, scale), after) in cases {
        let made = lengthened(&model(*before, *scores, after), 24, *scale);
        match made {
            Ok(made) => assert_eq!(written(&made), Vec::<String>::new(), "{what}"),
            Err(why) => panic!("{what}: {why}"),
        }
    }
}

#[test]
fn what_follows_in_no_known_way_is_refused() {
    let cases: [(&str, Change, Change, Change, &str); 15] = [
        (
            "every twelfth of all tokens",
            same,
            masked,
            |s, y| {
                let y = s.reshape(y, &[2 * ROWS, HIDDEN as i64]);
                s.slice(&y, 0, [0, i64::MAX, ROWS])
            },
            "by numbers that do not",
        ),
        (
            "the last twelve of all tokens",
            same,
            masked,
            |s, y| {
                let y = s.reshape(y, &[2 * ROWS, HIDDEN as i64]);
                s.slice(&y, 0, [-ROWS, i64::MAX, 1])
            },
            "by numbers that do not",
        ),
        (
            "a place modulo the length",
            same,
            masked,
            |s, y| {
                let place = s.with("ArgMax", &[y], &[("axis", A::Int(1))]);
                let length = s.int(ROWS);
                s.op("Mod", &[&place, &length])
            },
            "may follow from the 12 tokens",
        ),
        (
            "an output of positions",
            same,
            masked,
            |s, y| {
                let positions = s.typed(DType::I64, &[1, LENGTH], (0..LENGTH).map(|n| n as f64));
                s.output(&positions);
                y.to_owned()
            },
            "is made for 12 tokens",
        ),
        (
            "a mask that ends before the last token",
            same,
            |s, x| {
                let mask = added(
                    s,
                    1,
                    |[_, q, k]| if k + LENGTH <= q + 2 { -1e4 } else { 0.0 },
                );
                s.op("Add", &[x, &mask])
            },
            same,
            "numbers for each token",
        ),
        (
            "a bound of twice the length",
            same,
            masked,
            |s, y| {
                let [low, high] = [-24.0, 24.0].map(|n| s.float(n));
                s.op("Clip", &[y, &low, &high])
            },
            "which may follow from 12",
        ),
        (
            "weights of tokens",
            |s, x| {
                let w = s.weights(&[1, LENGTH, 1]);
                s.op("Mul", &[x, &w])
            },
            masked,
            same,
            "numbers for each token",
        ),
        (
            "a mean by number",
            same,
            masked,
            |s, y| {
                let axes = s.ints(&[1]);
                let sum = s.with("ReduceSum", &[y, &axes], &[("keepdims", A::Int(1))]);
                let count = s.float(LENGTH as f64);
                s.op("Div", &[&sum, &count])
            },
            "which may follow from 12",
        ),
        (
            "products over tokens",
            same,
            masked,
            |s, y| {
                let y = s.transpose(y, &[0, 2, 1]);
                let w = s.weights(&[LENGTH, LENGTH]);
                s.op("MatMul", &[&y, &w])
            },
            "numbers for each token",
        ),
        (
            "a token in the middle",
            same,
            masked,
            |s, y| {
                let middle = s.ints(&[5]);
                s.gather(y, &middle, 1)
            },
            "by numbers that do not",
        ),
        (
            "pairs of tokens",
            same,
            masked,
            |s, y| s.reshape(y, &[2, ROWS / 2, 2 * HIDDEN as i64]),
            "groups elements",
        ),
        (
            "halves of the tokens",
            same,
            masked,
            |s, y| s.slice(y, 1, [0, ROWS / 2, 1]),
            "by numbers that do not",
        ),
        (
            "a mask of blocks",
            same,
            |s, x| {
                let mask = added(s, 1, |[_, q, k]| if q / 4 == k / 4 { 0.0 } else { -1e4 });
                s.op("Add", &[x, &mask])
            },
            same,
            "numbers for each token",
        ),
        (
            "a prefix that all see",
            same,
            |s, x| {
                let mask = added(s, 1, |at| if at[2] < 3 { 0.0 } else { causal(at) });
                s.op("Add", &[x, &mask])
            },
            same,
            "numbers for each token",
        ),
        (
            "a norm over tokens",
            same,
            masked,
            |s, y| {
                let [scale, bias] = [(); 2].map(|()| s.weights(&[LENGTH, HIDDEN]));
                s.with(
                    "LayerNormalization",
                    &[y, &scale, &bias],
                    &[("axis", A::Int(1))],
                )
            },
            "numbers for each token",
        ),
    ];
    for (what, before, scores, after, why) in cases {
        match lengthened(&model(before, scores, after), 24, false) {
            Ok(_) => panic!("{what} is not refused"),
            Err(error) => assert!(error.contains(why), "{what}: {error}"),
        }
    }
}

#[test]
fn everything_that_does_not_follow_is_named() {
    let after: Change = |s, y| {
        let pairs = s.reshape(y, &[2, ROWS / 2, 2 * HIDDEN as i64]);
        let first = s.int(0);
        let pairs = s.gather(&pairs, &first, 0);
        s.output(&pairs);
        let middle = s.ints(&[5]);
        s.gather(y, &middle, 1)
    };
    let error = lengthened(&model(same, masked, after), 24, false).unwrap_err();
    let [groups, numbers] =
        ["groups elements", "by numbers that do not"].map(|why| error.find(why));
    assert!(groups.is_some() && groups < numbers, "{error}");
    // What is computed from them is not.
    assert_eq!(error.matches("sketch/").count(), 2, "{error}");
}

#[test]
fn rows_that_are_not_in_the_graph_are_refused() {
    for (before, length) in [(learned as Change, 13), (picked, 41)] {
        let error = lengthened(&model(before, masked, same), length, false).unwrap_err();
        assert!(error.contains("learned"), "{error}");
    }
}
