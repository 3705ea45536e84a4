//! Queries that meet sines and cosines of the distance.

use super::*;

/// Queries that meet projected codes of `query − key`, shifted into place.
fn relative(
    s: &mut Sketch,
    scores: &str,
    q: &str,
    frequency: fn(usize) -> f64,
    shift: i64,
) -> String {
    relative_of(s, scores, q, frequency, shift, (["Sin", "Cos"], projected))
}

/// Vectors of the heads, `[heads, size, row]`, from codes `[row, hidden]`.
fn projected(s: &mut Sketch, code: &str) -> String {
    let w = s.weights(&[HIDDEN, HIDDEN]);
    let rows = s.op("MatMul", &[code, &w]);
    let rows = s.reshape(&rows, &[81, HEADS as i64, SIZE as i64]);
    s.transpose(&rows, &[1, 2, 0])
}

/// The same for each sequence of a batch, whose codes are repeated and then put on one axis.
fn projected_for_each(s: &mut Sketch, code: &str) -> String {
    let shape = s.op("Shape", &["input_ids"]);
    let batch = s.slice(&shape, 0, [0, 1, 1]);
    let one = s.ints(&[1]);
    let times = s.concat(&[&one, &batch, &one], 0);
    let code = s.unsqueeze(code, &[1]);
    let codes = s.op("Tile", &[&code, &times]);
    let codes = s.reshape(&codes, &[-1, HIDDEN as i64]);
    let w = s.weights(&[HIDDEN, HIDDEN]);
    let rows = s.op("MatMul", &[&codes, &w]);
    let rows = s.reshape(&rows, &[81, -1, HEADS as i64, SIZE as i64]);
    s.transpose(&rows, &[1, 2, 3, 0])
}

/// The operators of both halves of a code, and how codes are projected.
type Codes = ([&'static str; 2], fn(&mut Sketch, &str) -> String);

fn relative_of(
    s: &mut Sketch,
    scores: &str,
    q: &str,
    frequency: fn(usize) -> f64,
    shift: i64,
    (waves, project): Codes,
) -> String {
    let half = HIDDEN / 2;
    let distance = s.distance();
    let apart = s.op("Neg", &[&distance]);
    let shift = s.int(shift);
    let apart = s.op("Add", &[&apart, &shift]);
    // Codes of −40 to 40, and the row of each pair.
    let from = [-40, 41, 1].map(|n| s.int(n));
    let all = s.op("Range", &[&from[0], &from[1], &from[2]]);
    let all = s.cast(&all, DType::F32);
    let all = s.unsqueeze(&all, &[1]);
    let f = s.floats(&[1, half], (0..half).map(frequency));
    let angles = s.op("Mul", &[&all, &f]);
    let parts = waves.map(|op| s.op(op, &[&angles]));
    let code = s.concat(&[&parts[0], &parts[1]], -1);
    let rows = project(s, &code);
    let bias = s.weights(&[HEADS, 1, SIZE]);
    let q = s.op("Add", &[q, &bias]);
    let all = s.op("MatMul", &[&q, &rows]);
    let center = s.int(40);
    let index = s.op("Add", &[&apart, &center]);
    let shape = s.op("Shape", &[scores]);
    let index = s.op("Expand", &[&index, &shape]);
    let term = s.with("GatherElements", &[&all, &index], &[("axis", A::Int(-1))]);
    s.op("Add", &[scores, &term])
}

fn falling(m: usize) -> f64 {
    1e4f64.powf(-2.0 * m as f64 / HIDDEN as f64)
}

#[test]
fn queries_that_meet_projected_sinusoids_are_transformer_xl() {
    let found = found_with(|s, scores, q, _| relative(s, scores, q, falling, 0));
    let want = json!({"heads": HEADS, "head_dim": SIZE, "clamp": null});
    assert_eq!(reported(&found), [(Kind::TransformerXl, want)]);
}

#[test]
fn sinusoids_may_be_repeated_for_each_sequence() {
    let found = found_with(|s, scores, q, _| {
        let how: Codes = (["Sin", "Cos"], projected_for_each);
        relative_of(s, scores, q, falling, 0, how)
    });
    let want = json!({"heads": HEADS, "head_dim": SIZE, "clamp": null});
    assert_eq!(reported(&found), [(Kind::TransformerXl, want)]);
}

#[test]
fn changed_sinusoids_are_unknown() {
    let cases: [(&str, Term); 6] = [
        (
            "of the next distance, for each sequence",
            |s, scores, q, _| {
                let how = (
                    ["Sin", "Cos"],
                    projected_for_each as fn(&mut Sketch, &str) -> String,
                );
                relative_of(s, scores, q, falling, 1, how)
            },
        ),
        ("a frequency up by 1 %", |s, scores, q, _| {
            let f = |m: usize| falling(m) * if m == 3 { 1.01 } else { 1.0 };
            relative(s, scores, q, f, 0)
        }),
        ("of the next distance", |s, scores, q, _| {
            relative(s, scores, q, falling, 1)
        }),
        ("of the opposite distance", |s, scores, q, _| {
            relative(s, scores, q, |m| -falling(m), 0)
        }),
        ("sines and cosines swapped", |s, scores, q, _| {
            relative_of(s, scores, q, falling, 0, (["Cos", "Sin"], projected))
        }),
        ("frequencies in no series", |s, scores, q, _| {
            relative(s, scores, q, |m| 1.0 / (1.0 + m as f64), 0)
        }),
    ];
    for (name, term) in cases {
        let found = found_with(term);
        assert!(is_unknown(&found), "{name}: {:?}", reported(&found));
    }
}
