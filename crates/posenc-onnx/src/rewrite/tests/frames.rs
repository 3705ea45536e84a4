//! Tables behind convolutions that join several frames to a token.

use posenc_ir::{DType, Model};

use crate::graph::sketch::{A, HIDDEN, Sketch};
use crate::request::{LawName, Request};
use crate::rewrite::rewrite;

/// Rows of the table.
const ROWS: usize = 40;

/// A layer on tokens of `step` frames each, with rows of a table that is cut to their number or picked by their
/// places, and with what is done to the tokens then.
fn model(step: i64, is_picked: bool, then: fn(&mut Sketch, &str, &str) -> String) -> Model {
    padded(1, step, is_picked, then)
}

/// The same with so many frames of zeros at both ends.
fn padded(
    pads: i64,
    step: i64,
    is_picked: bool,
    then: fn(&mut Sketch, &str, &str) -> String,
) -> Model {
    let mut s = Sketch::default();
    let x = s.input("mel", DType::F32, &["batch", "8", "frames"]);
    let w = s.weights(&[HIDDEN, 8, 3]);
    let (steps, pads) = ([step], [pads; 2]);
    let attrs = [
        ("kernel_shape", A::Ints(&[3])),
        ("pads", A::Ints(&pads)),
        ("strides", A::Ints(&steps)),
    ];
    let y = s.with("Conv", &[&x, &w], &attrs);
    let x = s.transpose(&y, &[0, 2, 1]);
    let (shape, one, zero) = (s.op("Shape", &[&x]), s.ints(&[1]), s.ints(&[0]));
    let length = s.gather(&shape, &one, 0);
    let table = s.weights(&[ROWS, HIDDEN]);
    let [first, by] = [0, 1].map(|n| s.int(n));
    let end = s.op("Squeeze", &[&length]);
    let places = s.op("Range", &[&first, &end, &by]);
    let rows = match is_picked {
        false => s.op("Slice", &[&table, &zero, &length, &zero]),
        true => s.gather(&table, &places, 0),
    };
    let x = s.op("Add", &[&x, &rows]);
    let x = then(&mut s, &x, &places);
    let y = s.attends(&x, &x);
    s.model(18, &[&y])
}

/// The numbers of the only table with so many rows.
fn rows(model: &Model, count: usize) -> Vec<f64> {
    let graph = model.graph();
    let read = graph.nodes().filter_map(|(_, node)| node.input(0));
    let mut stored = read.filter_map(|value| graph.constant(value));
    let table = stored.find(|rows| rows.dims() == [count, HIDDEN]);
    table.expect("a table").to_f64s().expect("numbers").to_vec()
}

/// The rows of the table after it was stretched to twice as many.
fn stretched(mut model: Model) -> Result<Vec<f64>, String> {
    let mut request = Request {
        scale: Some(LawName::Linear.into()),
        ..Request::default()
    };
    request.parameters.factor = Some(2.0);
    let done = rewrite(&mut model, &request).map_err(|why| why.to_string())?;
    assert_eq!(done.report.limits.before[0].length, ROWS);
    assert_eq!(done.report.limits.after[0].length, 2 * ROWS);
    Ok(rows(&model, 2 * ROWS))
}

#[test]
fn rows_of_tokens_of_several_frames_are_stretched() {
    for step in [1, 2, 3, 5] {
        for is_picked in [false, true] {
            let before = model(step, is_picked, |_, x, _| x.to_owned());
            let old = rows(&before, ROWS);
            let new = stretched(before).unwrap_or_else(|why| panic!("{step} {is_picked}: {why}"));
            // Half a row is between the centres of each two new ones.
            let between = |row: usize, share: f64, at: usize| {
                let place = |row: usize| old[row * HIDDEN + at];
                (1.0 - share) * place(row) + share * place(row + 1)
            };
            for (row, share, at) in [(0, 0.25, 0), (7, 0.75, 3), (ROWS - 2, 0.25, 1)] {
                let wanted = between(row, share, at);
                let place = 2 * row + if share < 0.5 { 1 } else { 2 };
                let got = new[place * HIDDEN + at];
                assert!((got - wanted).abs() < 1e-6, "{step} {row}: {got} {wanted}");
            }
        }
    }
}

#[test]
fn every_number_of_tokens_is_found_where_frames_at_the_ends_are_lost() {
    for step in [2, 4] {
        for pads in [0, 1, 5] {
            for length in (ROWS + 1..3 * ROWS).step_by(13) {
                let mut request = Request {
                    scale: Some(LawName::Linear.into()),
                    ..Request::default()
                };
                request.parameters.max_length = Some(length);
                let mut model = padded(pads, step, true, |_, x, _| x.to_owned());
                let done = rewrite(&mut model, &request).map_err(|why| why.to_string());
                let done = done.unwrap_or_else(|why| panic!("{step} {pads} {length}: {why}"));
                assert_eq!(done.report.limits.after[0].length, length);
            }
        }
    }
}

/// Tokens that are zero from a place on.
fn hidden(s: &mut Sketch, x: &str, places: &str, from: i64) -> String {
    let from = s.int(from);
    let keeps = s.op("Less", &[places, &from]);
    let keeps = s.cast(&keeps, DType::F32);
    let keeps = s.unsqueeze(&keeps, &[1]);
    s.op("Mul", &[x, &keeps])
}

#[test]
fn what_ends_with_the_table_is_refused() {
    for step in [1, 2, 3] {
        let at_the_end = |s: &mut Sketch, x: &str, places: &str| hidden(s, x, places, ROWS as i64);
        let why = stretched(model(step, true, at_the_end)).unwrap_err();
        let says = format!("this Less has no effect up to {ROWS} tokens");
        assert!(why.contains(&says), "{step}: {why}");
    }
    let later = |s: &mut Sketch, x: &str, places: &str| hidden(s, x, places, 4 * ROWS as i64);
    stretched(model(2, true, later)).expect("control");
}
