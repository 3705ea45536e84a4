//! Position that joins content otherwise than in a sum.

mod beside;

use super::*;

/// Rows `[batch, sequence, width]` that an index `[sequence]` picks.
fn wide_rows(s: &mut Sketch, at: &str, width: usize) -> String {
    let table = s.weights(&[ROWS, width]);
    let p = s.gather(&table, at, 0);
    let (shape, width) = (s.op("Shape", &["input_ids"]), s.ints(&[width as i64]));
    let shape = s.concat(&[&shape, &width], 0);
    s.op("Expand", &[&p, &shape])
}

/// Features with others next to them, projected to as many as before.
fn concatenated(s: &mut Sketch, x: &str, others: &str, width: usize) -> String {
    let x = s.concat(&[x, others], 2);
    let w = s.weights(&[HIDDEN + width, HIDDEN]);
    s.op("MatMul", &[&x, &w])
}

/// The sum of features and of those rows that are as far ahead as an input says.
fn picked(s: &mut Sketch, x: &str, rows: &str) -> String {
    let by = s.input("shift", DType::I64, &["batch", "1", "1"]);
    let at = s.range();
    let at = s.unsqueeze(&at, &[0, 2]);
    let at = s.op("Sub", &[&at, &by]);
    let at = s.op("Abs", &[&at]);
    let shape = s.op("Shape", &[rows]);
    let at = s.op("Expand", &[&at, &shape]);
    let p = s.with("GatherElements", &[rows, &at], &[("axis", A::Int(1))]);
    s.op("Add", &[x, &p])
}

#[test]
fn position_that_joins_otherwise_than_in_a_sum_is_unknown() {
    let cases: [(&str, Embed, &str); 4] = [
        (
            "moved by content",
            |s, x| {
                let at = s.range();
                let p = wide_rows(s, &at, HIDDEN);
                picked(s, &x, &p)
            },
            "picks by content from a table of positions [14, 24]",
        ),
        (
            "next to the features",
            |s, x| {
                let at = s.range();
                let p = wide_rows(s, &at, 4);
                concatenated(s, &x, &p, 4)
            },
            "concatenates to the features a table of positions [14, 4]",
        ),
        (
            "before the features",
            |s, x| {
                let at = s.range();
                let p = wide_rows(s, &at, HIDDEN);
                concatenated(s, &p, &x, HIDDEN)
            },
            "concatenates to the features a table of positions [14, 24]",
        ),
        (
            "as factors",
            |s, x| {
                let at = s.range();
                let p = rows(s, &at);
                let x = s.op("Mul", &[&p, &x]);
                let scale = s.weights(&[HIDDEN]);
                s.op("LayerNormalization", &[&x, &scale])
            },
            "multiplies the features with a table of positions [14, 24]",
        ),
    ];
    for (name, embed, why) in cases {
        let (mut model, found) = looked_at(embed);
        let [finding] = &found.findings[..] else {
            panic!("{name}: {:?}", found.findings);
        };
        assert_eq!(finding.encoding, Encoding::Unknown, "{name}");
        assert!(finding.evidence[0].contains(why), "{name}: {finding:?}");
        let to_none = Request {
            to: Some(posenc_encodings::kind::Kind::None),
            ..Request::default()
        };
        let before = model.graph().text();
        let refused = crate::rewrite::rewrite(&mut model, &to_none).unwrap_err();
        assert!(refused.to_string().contains(why), "{name}: {refused}");
        assert_eq!(model.graph().text(), before, "{name}");
    }
}

#[test]
fn what_joins_otherwise_than_in_a_sum_and_is_no_position_is_not_reported() {
    let cases: [(&str, Embed); 6] = [
        ("a row that all tokens pick", |s, x| {
            let (at, zero) = (s.range(), s.int(0));
            let types = s.op("Mul", &[&at, &zero]);
            let p = wide_rows(s, &types, HIDDEN);
            picked(s, &x, &p)
        }),
        ("a row next to all features", |s, x| {
            let (at, zero) = (s.range(), s.int(0));
            let types = s.op("Mul", &[&at, &zero]);
            let p = wide_rows(s, &types, 4);
            concatenated(s, &x, &p, 4)
        }),
        ("other content next to the features", |s, x| {
            let w = s.weights(&[HIDDEN, 4]);
            let y = s.op("MatMul", &[&x, &w]);
            concatenated(s, &x, &y, 4)
        }),
        ("a scale", |s, x| {
            let scale = s.weights(&[HIDDEN]);
            s.op("Mul", &[&x, &scale])
        }),
        ("a mask as a factor", |s, x| {
            let mask = s.input("attention_mask", DType::I64, &["batch", "sequence"]);
            let mask = s.cast(&mask, DType::F32);
            let mask = s.unsqueeze(&mask, &[2]);
            let wide = s.weights(&[1, 1, HIDDEN]);
            let mask = s.op("Mul", &[&mask, &wide]);
            s.op("Mul", &[&x, &mask])
        }),
        ("tokens before the others", |s, x| {
            let x = s.slice(&x, 1, [2, i64::MAX, 1]);
            let at = s.range();
            let [zero, one, two] = [0, 1, 2].map(|n| s.ints(&[n]));
            let at = s.op("Slice", &[&at, &zero, &two]);
            let table = s.weights(&[ROWS, HIDDEN]);
            let p = s.gather(&table, &at, 0);
            let shape = s.op("Shape", &["input_ids"]);
            let batch = s.op("Slice", &[&shape, &zero, &one]);
            let rest = s.ints(&[2, HIDDEN as i64]);
            let shape = s.concat(&[&batch, &rest], 0);
            let p = s.op("Expand", &[&p, &shape]);
            s.concat(&[&p, &x], 1)
        }),
    ];
    for (name, embed) in cases {
        let found = encodings(embed);
        assert!(found.is_empty(), "{name}: {found:?}");
    }
}

#[test]
fn rows_next_to_the_features_whose_numbers_are_absent_are_unknown() {
    let without_numbers = encodings(|s, x| {
        let at = s.range();
        let table = s.weights(&[ROWS, 4]);
        s.make_absent(&table);
        let p = s.gather(&table, &at, 0);
        let (shape, width) = (s.op("Shape", &["input_ids"]), s.ints(&[4]));
        let shape = s.concat(&[&shape, &width], 0);
        let p = s.op("Expand", &[&p, &shape]);
        concatenated(s, &x, &p, 4)
    });
    assert_eq!(without_numbers, [Encoding::Unknown]);
    let content = encodings(|s, x| {
        let w = s.weights(&[HIDDEN, 4]);
        s.make_absent(&w);
        let y = s.op("MatMul", &[&x, &w]);
        concatenated(s, &x, &y, 4)
    });
    assert_eq!(content, []);
}
