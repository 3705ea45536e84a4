//! Numbers and vectors that are the same for all tokens of a sequence.

use super::*;

/// Attention over tokens to which a row of each sample is added.
fn with_row(s: &mut Sketch, tokens: &str, row: &str) -> String {
    let row = s.unsqueeze(row, &[1]);
    let x = s.op("Add", &[tokens, &row]);
    s.attends(&x, &x)
}

/// A row that the number of each sample picks.
fn picked(s: &mut Sketch, name: &str, dims: &[&str]) -> String {
    let number = s.input(name, DType::I64, dims);
    let table = s.weights(&[10, HIDDEN]);
    s.gather(&table, &number, 0)
}

/// A row that is projected from a vector of each sample.
fn vector_of(s: &mut Sketch, name: &str, size: &str) -> String {
    let vector = s.input(name, DType::F32, &["batch", size]);
    linear(s, &vector, size.parse().unwrap(), HIDDEN)
}

fn features(s: &mut Sketch) -> String {
    let x = sequence(s);
    linear(s, &x, 24, HIDDEN)
}

#[test]
fn one_voice_for_all_tokens() {
    without(1, |s| {
        let x = s.embedded();
        let row = picked(s, "speaker_id", &["batch"]);
        with_row(s, &x, &row)
    });
}

#[test]
fn class_labels() {
    for dims in [&["batch"][..], &["1"]] {
        let draw = |s: &mut Sketch| {
            let x = features(s);
            let row = picked(s, "class_labels", dims);
            with_row(s, &x, &row)
        };
        let mut s = Sketch::default();
        let y = draw(&mut s);
        assert_eq!(faults(&s.model(18, &[&y]), 1, &[]), [""; 0], "{dims:?}");
    }
}

#[test]
fn a_word_and_its_neighbors() {
    without(0, |s| {
        let word = s.input("word", DType::I64, &["batch"]);
        let others = s.input("others", DType::I64, &["batch", "count"]);
        let [own, other] = [0; 2].map(|_| s.weights(&[30, HIDDEN]));
        let (own, other) = (s.gather(&own, &word, 0), s.gather(&other, &others, 0));
        let own = s.unsqueeze(&own, &[2]);
        let y = s.op("MatMul", &[&other, &own]);
        let axes = s.ints(&[2]);
        let y = s.op("Squeeze", &[&y, &axes]);
        softmax(s, &y, 1)
    });
}

#[test]
fn voice_vector() {
    without(1, |s| {
        let x = s.embedded();
        let row = vector_of(s, "speaker_embedding", "16");
        with_row(s, &x, &row)
    });
}

#[test]
fn a_vector_of_each_sample_added_to_all_features() {
    without(1, |s| {
        let x = features(s);
        let row = vector_of(s, "pooled", "24");
        with_row(s, &x, &row)
    });
}

fn timed(s: &mut Sketch, name: &str, dtype: DType, dims: &[&str]) -> String {
    let x = features(s);
    let times = s.input(name, dtype, dims);
    let times = s.cast(&times, DType::F32);
    let times = if dims.len() == 1 {
        s.unsqueeze(&times, &[1])
    } else {
        times
    };
    let f = s.floats(&[1, 12], (0..12).map(|i| THETA.powf(-(i as f64) / 12.0)));
    let angles = s.op("Mul", &[&times, &f]);
    let (cos, sin) = (s.op("Cos", &[&angles]), s.op("Sin", &[&angles]));
    let w = s.concat(&[&cos, &sin], 1);
    let row = linear(s, &w, HIDDEN, HIDDEN);
    with_row(s, &x, &row)
}

#[test]
fn float_times() {
    without(1, |s| timed(s, "timestep", DType::F32, &["batch"]));
}

#[test]
fn float_times_of_one() {
    without(1, |s| timed(s, "timestep", DType::F32, &["1"]));
}

#[test]
fn float_times_column() {
    without(1, |s| timed(s, "sigma", DType::F32, &["batch", "1"]));
}

#[test]
fn float_guidance() {
    without(1, |s| timed(s, "guidance", DType::F32, &["batch"]));
}

/// Numbers of a network that is conditioned on one number of each sample.
#[test]
fn pictures_scaled_by_their_noise() {
    without(0, |s| {
        let x = pixels(s);
        let noise = s.input("sigma", DType::F32, &["batch"]);
        let noise = s.unsqueeze(&noise, &[1, 2, 3]);
        let y = s.op("Mul", &[&x, &noise]);
        convolved(s, &y, &[3, 3, 3, 3], 1)
    });
}

#[test]
fn a_memory_read_by_likeness() {
    without(1, |s| {
        let x = s.input("x", DType::F32, &["batch", "24"]);
        let memory = s.input("memory", DType::F32, &["batch", "16", "8"]);
        let key = linear(s, &x, 24, 8);
        let key = s.unsqueeze(&key, &[1]);
        let turned = s.transpose(&memory, &[0, 2, 1]);
        let scores = s.op("MatMul", &[&key, &turned]);
        let weights = softmax(s, &scores, -1);
        s.op("MatMul", &[&weights, &memory])
    });
}

#[test]
fn a_table_beside_a_voice_is_found() {
    with_table(|s| {
        let x = s.embedded();
        let x = placed(s, &x);
        let row = vector_of(s, "speaker_embedding", "16");
        with_row(s, &x, &row)
    });
}
