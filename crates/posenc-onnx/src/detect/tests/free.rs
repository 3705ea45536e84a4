//! Inputs of an open size whose length and width the graph names.

use super::*;
use crate::graph::mixing::Mixing;

/// Frames of `bins` features, of which three make one of the hidden size at every so many.
fn convolved(s: &mut Sketch, x: &str, bins: usize, step: i64) -> String {
    let (w, steps) = (s.weights(&[HIDDEN, bins, 3]), [step]);
    let attrs = [
        ("kernel_shape", A::Ints(&[3])),
        ("pads", A::Ints(&[1, 1])),
        ("strides", A::Ints(&steps)),
    ];
    s.with("Conv", &[x, &w], &attrs)
}

/// Frames of `bins` features, convolved with this step, with rows of a table added, through one layer.
fn heard(bins: usize, step: i64, rows: usize) -> Model {
    let mut s = Sketch::default();
    let x = s.input(
        "input_features",
        DType::F32,
        &["batch", "feature_size", "frames"],
    );
    let y = convolved(&mut s, &x, bins, 1);
    let y = convolved(&mut s, &y, HIDDEN, step);
    let x = s.transpose(&y, &[0, 2, 1]);
    let table = s.weights(&[rows, HIDDEN]);
    let x = s.op("Add", &[&x, &table]);
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let scores = scores(&mut s, &q, &k);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    let y = s.merged(&y);
    s.model(17, &[&y])
}

#[test]
fn the_frames_of_sound_are_as_many_as_a_table_has_rows_for() {
    for (bins, step, rows) in [(20, 2, 40), (7, 1, 33), (20, 2, 100)] {
        let read = found(&heard(bins, step, rows));
        assert_eq!(read.lengths.sequence, rows * step as usize, "{bins} {step}");
        assert_eq!(read.attention.len(), 1);
        assert_eq!(kinds(&read), [Kind::Learned]);
    }
}

/// A table of which as many rows are added as there are tokens, by their number or half that of the frames.
#[test]
fn more_frames_than_a_table_has_rows_for_are_not_tried() {
    let heard = |rows: usize, counts_frames: bool| {
        let mut s = Sketch::default();
        let x = s.input("mel", DType::F32, &["batch", "8", "frames"]);
        let y = convolved(&mut s, &x, 8, 2);
        let x = s.transpose(&y, &[0, 2, 1]);
        let (of, at) = if counts_frames { ("mel", 2) } else { (&*x, 1) };
        let (shape, first, axis) = (s.op("Shape", &[of]), s.ints(&[0]), s.ints(&[at]));
        let mut length = s.gather(&shape, &axis, 0);
        if counts_frames {
            let (one, two) = (s.ints(&[1]), s.ints(&[2]));
            let before = s.op("Sub", &[&length, &one]);
            let half = s.op("Div", &[&before, &two]);
            length = s.op("Add", &[&half, &one]);
        }
        let table = s.weights(&[rows, HIDDEN]);
        let table = s.op("Slice", &[&table, &first, &length, &first]);
        let x = s.op("Add", &[&x, &table]);
        let scale = s.weights(&[HIDDEN]);
        let x = s.op("LayerNormalization", &[&x, &scale]);
        let y = s.attends(&x, &x);
        found(&s.model(17, &[&y]))
    };
    for (rows, counts_frames) in [
        (20, false),
        (64, false),
        (300, false),
        (20, true),
        (64, true),
    ] {
        let read = heard(rows, counts_frames);
        assert_eq!(read.attention.len(), 1, "{rows}");
        assert_eq!(kinds(&read), [Kind::Learned], "{rows}");
        assert_eq!(read.limits[0].length, rows);
        let others = read.mixers.iter().filter(|m| m.mixing == Mixing::Other);
        assert_eq!(others.count(), 0, "{rows}");
    }
}

/// Tokens of several frames behind a class token, each with a row that its place picks.
#[test]
fn class_tokens_before_those_of_frames_are_no_part_of_the_limit() {
    for (step, rows) in [(1, 40), (2, 40), (3, 20), (4, 300)] {
        for has_class in [false, true] {
            let mut s = Sketch::default();
            let x = s.input("mel", DType::F32, &["batch", "8", "frames"]);
            let y = convolved(&mut s, &x, 8, step);
            let mut x = s.transpose(&y, &[0, 2, 1]);
            if has_class {
                let shape = s.op("Shape", &[&x]);
                let batch = s.slice(&shape, 0, [0, 1, 1]);
                let rest = s.ints(&[1, HIDDEN as i64]);
                let dims = s.concat(&[&batch, &rest], 0);
                let class = s.weights(&[1, 1, HIDDEN]);
                let class = s.op("Expand", &[&class, &dims]);
                x = s.concat(&[&class, &x], 1);
            }
            let (shape, one, first) = (s.op("Shape", &[&x]), s.int(1), s.int(0));
            let end = s.gather(&shape, &one, 0);
            let places = s.op("Range", &[&first, &end, &one]);
            let table = s.weights(&[rows, HIDDEN]);
            let added = s.gather(&table, &places, 0);
            let x = s.op("Add", &[&x, &added]);
            let y = s.attends(&x, &x);
            let read = found(&s.model(17, &[&y]));
            let tokens = rows - usize::from(has_class);
            assert_eq!(kinds(&read), [Kind::Learned], "{step} {has_class}");
            assert_eq!(read.findings[0].max_length, Some(tokens), "{step}");
            let limits: Vec<usize> = read.limits.iter().map(|l| l.length).collect();
            assert_eq!(limits, [tokens], "{step} {has_class}");
        }
    }
}

/// The dimensions of the only input at the lengths of a trial run.
fn dims(weights: &[usize], group: i64, dims: &[&str], op: &str) -> Vec<usize> {
    let mut s = Sketch::default();
    let x = s.input("features", DType::F32, dims);
    let w = s.weights(weights);
    let y = match op {
        "Conv" => s.with(op, &[&x, &w], &[("group", A::Int(group))]),
        _ => s.op(op, &[&x, &w]),
    };
    let model = s.model(17, &[&y]);
    let ports = Ports::of(model.graph(), &Default::default());
    let port = ports.iter().next().unwrap();
    ports.dims(port, crate::detect::trial::TRIAL)
}

#[test]
fn weights_tell_the_channels_of_an_input() {
    let open = &["batch", "a", "b"][..];
    assert_eq!(dims(&[6, 5, 3], 1, open, "Conv"), [2, 5, 14]);
    assert_eq!(dims(&[6, 5, 3], 2, open, "Conv"), [2, 10, 14]);
    assert_eq!(dims(&[9, 4], 1, open, "MatMul"), [2, 14, 9]);
    assert_eq!(
        dims(&[6, 1, 3, 3], 1, &["batch", "c", "64", "64"], "Conv"),
        [2, 1, 64, 64]
    );
    // What is declared stays, and other operators tell nothing.
    assert_eq!(
        dims(&[6, 5, 3], 1, &["batch", "7", "b"], "Conv"),
        [2, 7, 14]
    );
    assert_eq!(dims(&[14, 9], 1, open, "Mul"), [2, 14, 14]);
}
