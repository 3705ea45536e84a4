//! Numbers and vectors that are the same for all tokens of a sequence.

use super::*;

#[test]
fn one_voice_for_all_tokens() {
    without(1, |s| {
        let x = s.embedded();
        let voice = s.input("speaker_id", DType::I64, &["batch"]);
        let table = s.weights(&[8, HIDDEN]);
        let row = s.gather(&table, &voice, 0);
        let row = s.unsqueeze(&row, &[1]);
        let x = s.op("Add", &[&x, &row]);
        s.attends(&x, &x)
    });
}

#[test]
fn class_labels() {
    without(1, |s| {
        let x = sequence(s);
        let x = linear(s, &x, 24, HIDDEN);
        let y = s.input("class_labels", DType::I64, &["batch"]);
        let table = s.weights(&[10, HIDDEN]);
        let row = s.gather(&table, &y, 0);
        let row = s.unsqueeze(&row, &[1]);
        let x = s.op("Add", &[&x, &row]);
        s.attends(&x, &x)
    });
}

#[test]
fn class_of_one_picture() {
    without(1, |s| {
        let x = sequence(s);
        let x = linear(s, &x, 24, HIDDEN);
        let y = s.input("label", DType::I64, &["1"]);
        let table = s.weights(&[10, HIDDEN]);
        let row = s.gather(&table, &y, 0);
        let row = s.unsqueeze(&row, &[1]);
        let x = s.op("Add", &[&x, &row]);
        s.attends(&x, &x)
    });
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
        let voice = s.input("speaker_embedding", DType::F32, &["batch", "16"]);
        let row = linear(s, &voice, 16, HIDDEN);
        let row = s.unsqueeze(&row, &[1]);
        let x = s.op("Add", &[&x, &row]);
        s.attends(&x, &x)
    });
}

#[test]
fn a_vector_of_each_sample_added_to_all_tokens() {
    without(1, |s| {
        let x = s.embedded();
        let pooled = s.input("pooled", DType::F32, &["batch", "24"]);
        let row = linear(s, &pooled, 24, HIDDEN);
        let row = s.unsqueeze(&row, &[1]);
        let x = s.op("Add", &[&x, &row]);
        s.attends(&x, &x)
    });
}

#[test]
fn a_vector_of_each_sample_added_to_all_features() {
    without(1, |s| {
        let x = sequence(s);
        let x = linear(s, &x, 24, HIDDEN);
        let pooled = s.input("pooled", DType::F32, &["batch", "24"]);
        let row = linear(s, &pooled, 24, HIDDEN);
        let row = s.unsqueeze(&row, &[1]);
        let x = s.op("Add", &[&x, &row]);
        s.attends(&x, &x)
    });
}

fn timed(s: &mut Sketch, name: &str, dtype: DType, dims: &[&str]) -> String {
    let x = sequence(s);
    let x = linear(s, &x, 24, HIDDEN);
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
    let w = linear(s, &w, HIDDEN, HIDDEN);
    let w = s.unsqueeze(&w, &[1]);
    let x = s.op("Add", &[&x, &w]);
    s.attends(&x, &x)
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
        let voice = s.input("speaker_embedding", DType::F32, &["batch", "16"]);
        let row = linear(s, &voice, 16, HIDDEN);
        let row = s.unsqueeze(&row, &[1]);
        let x = s.op("Add", &[&x, &row]);
        let x = placed(s, &x);
        s.attends(&x, &x)
    });
}
