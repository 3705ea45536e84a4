//! Sinusoids, stored and computed, and rows that are nearly such.

use super::*;

/// Rows of a stored sinusoid whose numbers are changed.
fn stored(s: &mut Sketch, change: impl Fn(usize, usize, f64) -> f64) -> String {
    let table = table(s, &[ROWS, HIDDEN], change);
    first(s, &table)
}

/// The same of a table that is stored as a list.
fn reshaped(s: &mut Sketch, change: impl Fn(usize, usize, f64) -> f64) -> String {
    let list = table(s, &[ROWS * HIDDEN], change);
    let dims = s.ints(&[ROWS as i64, HIDDEN as i64]);
    let table = s.op("Reshape", &[&list, &dims]);
    first(s, &table)
}

fn table(s: &mut Sketch, dims: &[usize], change: impl Fn(usize, usize, f64) -> f64) -> String {
    let at: Vec<f64> = (0..ROWS).map(|p| p as f64).collect();
    let rows = sinusoid(None, 0).reference(&at);
    let data = rows.indexed_iter().map(|((p, c), v)| change(p, c, *v));
    s.floats(dims, data)
}

/// A row for each token.
fn first(s: &mut Sketch, table: &str) -> String {
    let at = s.range();
    s.gather(table, &at, 0)
}

/// Sines, then cosines, of frequencies that `change` scales, computed in the graph.
fn computed(s: &mut Sketch, first: &str, second: &str, change: fn(usize) -> f64) -> String {
    let pairs = HIDDEN / 2;
    let frequency = |i: usize| change(i) * THETA.powf(-(i as f64) / pairs as f64);
    let frequencies = s.floats(&[1, pairs], (0..pairs).map(frequency));
    let at = s.range();
    let at = s.cast(&at, DType::F32);
    let at = s.unsqueeze(&at, &[1]);
    let angles = s.op("MatMul", &[&at, &frequencies]);
    let (a, b) = (s.op(first, &[&angles]), s.op(second, &[&angles]));
    s.concat(&[&a, &b], -1)
}

#[test]
fn sinusoids_are_distinguished_from_learned_rows_by_their_numbers() {
    let cases: [(&str, Embed, Encoding); 16] = [
        (
            "stored",
            |s, x| {
                let p = stored(s, |_, _, v| v);
                s.op("Add", &[&x, &p])
            },
            Encoding::Sinusoidal(sinusoid(Some(ROWS), 0)),
        ),
        (
            "computed",
            |s, x| {
                let p = computed(s, "Sin", "Cos", |_| 1.0);
                s.op("Add", &[&x, &p])
            },
            Encoding::Sinusoidal(sinusoid(None, 0)),
        ),
        (
            "stored as a list and reshaped",
            |s, x| {
                let p = reshaped(s, |_, _, v| v);
                s.op("Add", &[&x, &p])
            },
            Encoding::Sinusoidal(sinusoid(Some(ROWS), 0)),
        ),
        (
            "stored as a list and reshaped, one row of the far end changed",
            |s, x| {
                let p = reshaped(s, |p, c, v| if p == 35 && c == 0 { 0.5 } else { v });
                s.op("Add", &[&x, &p])
            },
            learned(0),
        ),
        (
            "stored with the other sign",
            |s, x| {
                let table = table(s, &[ROWS, HIDDEN], |_, _, v| -v);
                let table = s.op("Neg", &[&table]);
                let p = first(s, &table);
                s.op("Add", &[&x, &p])
            },
            Encoding::Sinusoidal(sinusoid(Some(ROWS), 0)),
        ),
        (
            "stored, the first row zero",
            |s, x| {
                let p = stored(s, |p, _, v| if p == 0 { 0.0 } else { v });
                s.op("Add", &[&x, &p])
            },
            Encoding::Sinusoidal(sinusoid(Some(ROWS), 0)),
        ),
        (
            "stored, the second row zero",
            |s, x| {
                let p = stored(s, |p, _, v| if p == 1 { 0.0 } else { v });
                s.op("Add", &[&x, &p])
            },
            learned(0),
        ),
        (
            "stored, one row in the middle changed",
            |s, x| {
                let p = stored(s, |p, c, v| if p == 20 && c == 5 { v + 0.1 } else { v });
                s.op("Add", &[&x, &p])
            },
            learned(0),
        ),
        (
            "stored, and read as if no token came after the 20th",
            |s, x| {
                let table = table(s, &[ROWS, HIDDEN], |_, _, v| v);
                let (at, last) = (s.range(), s.int(20));
                let at = s.op("Min", &[&at, &last]);
                let p = s.gather(&table, &at, 0);
                s.op("Add", &[&x, &p])
            },
            learned(0),
        ),
        (
            "computed, and half as large from the 1000th token on",
            |s, x| {
                let p = computed(s, "Sin", "Cos", |_| 1.0);
                let (at, from) = (s.range(), s.int(1000));
                let (half, whole) = (s.float(0.5), s.float(1.0));
                let is_far = s.op("Greater", &[&at, &from]);
                let size = s.op("Where", &[&is_far, &half, &whole]);
                let size = s.unsqueeze(&size, &[1]);
                let p = s.op("Mul", &[&p, &size]);
                s.op("Add", &[&x, &p])
            },
            Encoding::Unknown,
        ),
        (
            "stored, one column negated",
            |s, x| {
                let p = stored(s, |_, c, v| if c == 3 { -v } else { v });
                s.op("Add", &[&x, &p])
            },
            learned(0),
        ),
        (
            "stored, one row of the far end changed",
            |s, x| {
                let p = stored(s, |p, c, v| if p == 35 && c == 0 { 0.5 } else { v });
                s.op("Add", &[&x, &p])
            },
            learned(0),
        ),
        (
            "stored, negated as a whole",
            |s, x| {
                let p = stored(s, |_, _, v| v);
                s.op("Sub", &[&p, &x])
            },
            Encoding::Sinusoidal(sinusoid(Some(ROWS), 0)),
        ),
        (
            "computed, one frequency 1 % up",
            |s, x| {
                let p = computed(s, "Sin", "Cos", |i| if i == 5 { 1.01 } else { 1.0 });
                s.op("Add", &[&x, &p])
            },
            Encoding::Unknown,
        ),
        (
            "computed, sines alone",
            |s, x| {
                let p = computed(s, "Sin", "Sin", |_| 1.0);
                s.op("Add", &[&x, &p])
            },
            Encoding::Unknown,
        ),
        (
            "computed, sines and cosines exchanged",
            |s, x| {
                let p = computed(s, "Cos", "Sin", |_| 1.0);
                s.op("Add", &[&x, &p])
            },
            Encoding::Sinusoidal(Sinusoidal {
                cosines_first: true,
                ..sinusoid(None, 0)
            }),
        ),
    ];
    for (name, embed, want) in cases {
        assert_eq!(encodings(embed), [want], "{name}");
    }
}

#[test]
fn rows_that_are_left_out_are_not_counted() {
    let every_second = encodings(|s, x| {
        let table = table(s, &[ROWS, HIDDEN], |_, _, v| v);
        let table = s.slice(&table, 0, [0, ROWS as i64, 2]);
        let p = first(s, &table);
        s.op("Add", &[&x, &p])
    });
    let whole = Encoding::Sinusoidal(sinusoid(Some(ROWS), 0));
    assert_eq!(every_second.len(), 1, "{every_second:?}");
    assert_ne!(every_second, [whole]);
}
