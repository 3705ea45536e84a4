//! What follows which tokens there are is no bias of positions, and stays.

use super::*;

/// 1 for pairs of equal ids, `[batch, 1, query, key]`.
fn equal(s: &mut Sketch) -> String {
    let (rows, columns) = (
        s.unsqueeze("input_ids", &[1, 3]),
        s.unsqueeze("input_ids", &[1, 2]),
    );
    s.op("Equal", &[&rows, &columns])
}

/// Whether a key is this id or a lower one, `[batch, 1, 1, key]`.
fn low_keys(s: &mut Sketch, id: i64) -> String {
    let (keys, id) = (s.unsqueeze("input_ids", &[1, 2]), s.int(id));
    s.op("LessOrEqual", &[&keys, &id])
}

fn times(s: &mut Sketch, condition: &str, number: f64) -> String {
    let (ones, number) = (s.cast(condition, DType::F32), s.float(number));
    s.op("Mul", &[&ones, &number])
}

/// A bias with what follows the tokens. Without the bias, the rest is left.
const KEPT: &[(&str, Made)] = &[
    ("a number for equal tokens", |s, f| {
        let same = equal(s);
        vec![line(s, f), times(s, &same, 1.5)]
    }),
    ("a sum of both", |s, f| {
        let (line, same) = (line(s, f), equal(s));
        let same = times(s, &same, 1.5);
        vec![s.op("Add", &[&same, &line])]
    }),
    ("two numbers that tokens select", |s, f| {
        let (line, same) = (line(s, f), equal(s));
        let (high, low) = (s.float(1.5), s.float(-0.5));
        let both = s.op("Where", &[&same, &high, &low]);
        vec![s.op("Sub", &[&both, &line])]
    }),
    ("a number for some keys", |s, f| {
        let keys = low_keys(s, 9);
        vec![times(s, &keys, -3.0), line(s, f)]
    }),
    ("a number of each head for some keys", |s, f| {
        let (line, keys) = (line(s, f), low_keys(s, 9));
        let keys = s.cast(&keys, DType::F32);
        let heads = s.floats(&[1, HEADS, 1, 1], [2.0, -1.0, 0.5]);
        let keys = s.op("Mul", &[&keys, &heads]);
        vec![s.op("Add", &[&line, &keys])]
    }),
    ("a number for some keys, and a mask", |s, f| {
        let (line, keys, causal) = (line(s, f), low_keys(s, 9), causal(s, -1e9));
        let keys = times(s, &keys, 2.0);
        let all = s.op("Sum", &[&line, &keys, &causal]);
        vec![all, padding(s, -1e9)]
    }),
    ("a soft mask", |s, f| {
        let line = line(s, f);
        let soft = padding(s, -3.0);
        vec![s.op("Add", &[&line, &soft])]
    }),
];

#[test]
fn what_follows_the_tokens_stays() {
    for (name, made) in KEPT {
        let known = model(*made, added, 1.0);
        assert_eq!(known.kinds(), [Kind::Alibi], "{name}");
        let plain = model(*made, added, 0.0);
        let bare = known
            .without_encodings()
            .unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(bare.planes(), plain.planes(), "{name}");
        assert_eq!(bare.output(), plain.output(), "{name}");
        assert_ne!(bare.output(), known.output(), "{name}");
        let without: Made = |s, _| vec![padding(s, -1e9)];
        assert_ne!(
            model(without, added, 0.0).output(),
            plain.output(),
            "{name}"
        );
    }
}

#[test]
fn a_number_that_tokens_select_instead_of_a_bias_stays() {
    let of = |factor| {
        let made: Made = |s, f| {
            let (line, keys) = (line(s, f), low_keys(s, 9));
            let number = s.float(2.0);
            // The ids of a trial run are low.
            let keys = s.op("Not", &[&keys]);
            vec![s.op("Where", &[&keys, &number, &line])]
        };
        model(made, added, factor)
    };
    let bare = of(1.0).without_encodings().unwrap();
    assert_eq!(bare.output(), of(0.0).output());
}
