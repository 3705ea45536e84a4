//! Numbers that change from token to token and meet content, as the graph shows them without a run.

use super::*;
use crate::graph::sketch::SIZE;

/// What happens to a sequence before its tokens meet numbers.
const BEFORE: [(&str, Embed); 4] = [
    ("nothing", |_, x| x.to_owned()),
    ("a convolution of stride 2", |s, x| convolved(s, x, 2)),
    ("a recurrence in a body", |s, x| scanned(s, x)[1].clone()),
    ("ends that are filled up, and a convolution", |s, x| {
        let ends = s.ints(&[0, 2, 0, 0, 0, 0]);
        let x = s.op("Pad", &[x, &ends]);
        convolved(s, &x, 1)
    }),
];

/// Tokens that meet numbers, and whether these change from token to token.
const MET: [(&str, bool, Embed); 12] = [
    ("a factor of a difference", true, |s, x| {
        let rows = rows_of(s, x);
        let axis = s.ints(&[1]);
        let mean = s.op("ReduceMean", &[x, &axis]);
        let off = s.op("Sub", &[x, &mean]);
        let off = s.op("Mul", &[&off, &rows]);
        s.op("Add", &[x, &off])
    }),
    ("a mean of the first tokens", true, |s, x| {
        let at = range_of(s, x);
        let (four, zero) = (s.int(4), s.float(0.0));
        let is_first = s.op("Less", &[&at, &four]);
        let is_first = s.unsqueeze(&is_first, &[1]);
        let first = s.op("Where", &[&is_first, x, &zero]);
        let axis = s.ints(&[1]);
        let mean = s.op("ReduceMean", &[&first, &axis]);
        s.op("Add", &[x, &mean])
    }),
    ("a matrix for each place", true, |s, x| {
        let table = s.weights(&[200, HIDDEN, HIDDEN]);
        let at = range_of(s, x);
        let each = s.gather(&table, &at, 0);
        let rows = s.unsqueeze(x, &[2]);
        let rows = s.op("MatMul", &[&rows, &each]);
        s.reshape(&rows, &[0, -1, HIDDEN as i64])
    }),
    (
        "a sum of products with a matrix for each place",
        true,
        |s, x| {
            let table = s.weights(&[200, HIDDEN, HIDDEN]);
            let at = range_of(s, x);
            let each = s.gather(&table, &at, 0);
            s.with(
                "Einsum",
                &[x, &each],
                &[("equation", A::Text("bsd,sde->bse"))],
            )
        },
    ),
    ("a sum of products with one matrix", false, |s, x| {
        let each = s.weights(&[HIDDEN, HIDDEN]);
        s.with(
            "Einsum",
            &[x, &each],
            &[("equation", A::Text("bsd,de->bse"))],
        )
    }),
    ("a slope for each place", true, |s, x| {
        let rows = rows_of(s, x);
        s.op("PRelu", &[x, &rows])
    }),
    ("a number for each feature", false, |s, x| {
        let each = s.weights(&[HIDDEN]);
        s.op("Mul", &[x, &each])
    }),
    ("the same row for each place", false, |s, x| {
        let (at, zero) = (range_of(s, x), s.int(0));
        let at = s.op("Mul", &[&at, &zero]);
        let table = s.weights(&[200, HIDDEN]);
        let rows = s.gather(&table, &at, 0);
        s.op("Add", &[x, &rows])
    }),
    ("the length", false, |s, x| {
        let shape = s.op("Shape", &[x]);
        let one = s.int(1);
        let length = s.gather(&shape, &one, 0);
        let length = s.cast(&length, DType::F32);
        s.op("Div", &[x, &length])
    }),
    ("a row in front", false, |s, x| {
        let class = s.weights(&[1, HIDDEN]);
        let (shape, first) = (s.op("Shape", &[x]), s.ints(&[0]));
        let batch = s.gather(&shape, &first, 0);
        let rest = s.ints(&[1, HIDDEN as i64]);
        let all = s.concat(&[&batch, &rest], 0);
        let class = s.op("Expand", &[&class, &all]);
        s.concat(&[&class, x], 1)
    }),
    ("a number of places for each head", false, |s, x| {
        let heads = s.reshape(x, &[0, -1, HEADS as i64, SIZE as i64]);
        let each = s.weights(&[HEADS, 1]);
        let heads = s.op("Mul", &[&heads, &each]);
        s.reshape(&heads, &[0, -1, HIDDEN as i64])
    }),
    ("their mean", false, |s, x| {
        let axis = s.ints(&[1]);
        let mean = s.op("ReduceMean", &[x, &axis]);
        s.op("Sub", &[x, &mean])
    }),
];

fn convolved(s: &mut Sketch, x: &str, stride: i64) -> String {
    let w = s.weights(&[HIDDEN, HIDDEN, 3]);
    let y = s.transpose(x, &[0, 2, 1]);
    let y = s.with("Conv", &[&y, &w], &[("strides", A::Ints(&[stride]))]);
    s.transpose(&y, &[0, 2, 1])
}

/// 0, 1, 2 … for the tokens of a value.
fn range_of(s: &mut Sketch, x: &str) -> String {
    let shape = s.op("Shape", &[x]);
    let (zero, one) = (s.int(0), s.int(1));
    let length = s.gather(&shape, &one, 0);
    s.op("Range", &[&zero, &length, &one])
}

/// A row of a table for each token of a value.
fn rows_of(s: &mut Sketch, x: &str) -> String {
    let (table, at) = (s.weights(&[200, HIDDEN]), range_of(s, x));
    s.gather(&table, &at, 0)
}

/// What the graph shows at all sites.
fn met(model: &Model) -> Vec<String> {
    let found = detect(model, &Options::default());
    let sites: Vec<usize> = (0..found.attention.len()).collect();
    let met = super::super::met::met((model, &found), &sites);
    assert!(met.iter().all(|check| !check.ok));
    met.into_iter().map(|check| check.quantity).collect()
}

#[test]
fn numbers_that_change_from_token_to_token_are_seen_behind_everything() {
    for (before, shorten) in BEFORE {
        for (name, changes, meet) in MET {
            let mut s = Sketch::default();
            let x = s.embedded();
            let x = s.attends(&x, &x);
            let x = shorten(&mut s, &x);
            let x = meet(&mut s, &x);
            let met = met(&attended(s, x));
            assert_eq!(!met.is_empty(), changes, "{name} behind {before}: {met:?}");
        }
    }
}

#[test]
fn a_model_that_meets_such_numbers_is_not_run() {
    let place = |is_placed: bool| {
        let mut s = Sketch::default();
        let mut x = s.embedded();
        if is_placed {
            let rows = rows_of(&mut s, &x);
            x = s.op("Mul", &[&x, &rows]);
        }
        attended(s, x)
    };
    // A runtime that runs nothing.
    let backend = Evaluator {
        refused: Some("posenc/none"),
        ..Evaluator::default()
    };
    for is_placed in [false, true] {
        let model = place(is_placed);
        let found = detect(&model, &Options::default());
        let checks = check((&model, &found), &[0, 1], &backend).unwrap().checks;
        let failed = failed(&checks);
        assert_eq!(failed.len(), usize::from(is_placed), "{failed:?}");
        assert_eq!(checks.len() > 1, !is_placed, "{checks:?}");
    }
}

#[test]
fn masks_of_scores_and_encodings_that_stay_are_let_through() {
    let causal = fixture("mini/none");
    assert_eq!(met(&causal), [""; 0]);
    let bias = fixture("mini/alibi");
    assert_eq!(met(&bias), [""; 0], "compared by the run");
    for (kind, of_one) in [("learned", 0), ("sinusoidal", 0), ("rope", 8)] {
        let model = fixture(&format!("mini/{kind}"));
        let all = met(&model).len();
        assert_eq!(all, if kind == "rope" { 16 } else { 1 }, "{kind}: control");
        let found = detect(&model, &Options::default());
        let left = super::super::met::met((&model, &found), &[1]);
        assert_eq!(left.len(), of_one, "{kind} stays in the other layer");
    }
}
