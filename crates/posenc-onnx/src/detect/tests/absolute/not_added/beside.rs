use super::*;

/// A value with so many tokens more before and after, whose numbers `mode` and `fill` give.
fn padded(
    s: &mut Sketch,
    x: &str,
    [before, after]: [&str; 2],
    mode: &'static str,
    fill: f64,
) -> String {
    let zero = s.ints(&[0]);
    let pads = s.concat(&[&zero, before, &zero, &zero, after, &zero], 0);
    let fill = s.float(fill);
    s.with("Pad", &[x, &pads, &fill], &[("mode", A::Text(mode))])
}

/// A row for one token, and how many the others are: one less than there were.
fn token(s: &mut Sketch) -> (String, String) {
    let row = s.weights(&[1, 1, HIDDEN]);
    let shape = s.op("Shape", &["input_ids"]);
    let one = s.ints(&[1]);
    let all = s.gather(&shape, &one, 0);
    (row, s.op("Sub", &[&all, &one]))
}

fn others(s: &mut Sketch, x: &str) -> String {
    s.slice(x, 1, [1, i64::MAX, 1])
}

/// A token before the others, both padded as given and added.
fn added(s: &mut Sketch, x: &str, mode: &'static str, fill: f64) -> String {
    let (row, count) = token(s);
    let [none, one] = [0, 1].map(|n| s.ints(&[n]));
    let x = others(s, x);
    let x = padded(s, &x, [&one, &none], mode, fill);
    let row = padded(s, &row, [&none, &count], "constant", 0.0);
    s.op("Add", &[&row, &x])
}

#[test]
fn a_token_put_before_the_others_by_a_sum_is_no_position() {
    let cases: [(&str, Embed); 2] = [
        ("before", |s, x| added(s, &x, "constant", 0.0)),
        ("after, through a copy", |s, x| {
            let (row, count) = token(s);
            let [none, one] = [0, 1].map(|n| s.ints(&[n]));
            let x = others(s, &x);
            let x = padded(s, &x, [&none, &one], "constant", 0.0);
            let x = s.op("Identity", &[&x]);
            let row = padded(s, &row, [&count, &none], "constant", 0.0);
            s.op("Sum", &[&x, &row])
        }),
    ];
    for (name, embed) in cases {
        assert_eq!(encodings(embed), [], "{name}");
    }
}

#[test]
fn a_row_that_meets_other_tokens_is_position() {
    let cases: [(&str, Embed); 3] = [
        ("added to the first token", |s, x| {
            let (row, count) = token(s);
            let none = s.ints(&[0]);
            let row = padded(s, &row, [&none, &count], "constant", 0.0);
            s.op("Add", &[&row, &x])
        }),
        ("padded at the other end", |s, x| {
            let (row, count) = token(s);
            let [none, one] = [0, 1].map(|n| s.ints(&[n]));
            let x = others(s, &x);
            let x = padded(s, &x, [&none, &one], "constant", 0.0);
            let row = padded(s, &row, [&none, &count], "constant", 0.0);
            s.op("Add", &[&row, &x])
        }),
        ("padded with ones", |s, x| added(s, &x, "constant", 1.0)),
    ];
    for (name, embed) in cases {
        assert_eq!(encodings(embed), [Encoding::Unknown], "{name}");
    }
}

#[test]
fn a_row_that_is_padded_with_the_next_token_is_not_read() {
    let (_, found) = looked_at(|s, x| added(s, &x, "edge", 0.0));
    assert!(found.attention.is_empty() && found.findings.is_empty());
    assert_eq!(found.misplaced.len(), 1, "{:?}", found.misplaced);
}
