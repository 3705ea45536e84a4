//! One vector for each sample, whose features are no tokens.

use super::*;

fn vector(s: &mut Sketch) -> String {
    s.input("x", DType::F32, &["batch", "24"])
}

#[test]
fn a_perceptron() {
    without(0, |s| {
        let mut x = vector(s);
        for _ in 0..2 {
            x = linear(s, &x, 24, 24);
            x = s.op("Relu", &[&x]);
        }
        softmax(s, &x, 1)
    });
}

#[test]
fn a_code_with_noise() {
    without(0, |s| {
        let x = vector(s);
        let (mean, spread) = (linear(s, &x, 24, 8), linear(s, &x, 24, 8));
        let spread = s.op("Exp", &[&spread]);
        let noise = s.op("RandomNormalLike", &[&mean]);
        let noise = s.op("Mul", &[&noise, &spread]);
        let code = s.op("Add", &[&mean, &noise]);
        let y = linear(s, &code, 8, 24);
        s.op("Sigmoid", &[&y])
    });
}

#[test]
fn what_is_left_of_a_series_after_each_block() {
    without(0, |s| {
        let mut x = vector(s);
        let mut ahead = linear(s, &x, 24, 12);
        for _ in 0..2 {
            let h = linear(s, &x, 24, 32);
            let h = s.op("Relu", &[&h]);
            let back = linear(s, &h, 32, 24);
            x = s.op("Sub", &[&x, &back]);
            let more = linear(s, &h, 32, 12);
            ahead = s.op("Add", &[&ahead, &more]);
        }
        ahead
    });
}

/// A moving mean of a series and what is left of it, each with weights over all times.
#[test]
fn a_trend_and_what_is_left() {
    without(0, |s| {
        let x = s.input("series", DType::F32, &["batch", "24", "3"]);
        let x = s.transpose(&x, &[0, 2, 1]);
        let attrs = [("kernel_shape", A::Ints(&[5])), ("pads", A::Ints(&[2, 2]))];
        let trend = s.with("AveragePool", &[&x], &attrs);
        let rest = s.op("Sub", &[&x, &trend]);
        let (trend, rest) = (linear(s, &trend, 24, 12), linear(s, &rest, 24, 12));
        let y = s.op("Add", &[&trend, &rest]);
        s.transpose(&y, &[0, 2, 1])
    });
}

#[test]
fn stored_patterns_that_are_recalled() {
    without(0, |s| {
        let x = sequence(s);
        let y = linear(s, &x, 24, 16);
        let keys = s.weights(&[16, 64]);
        let scores = s.op("MatMul", &[&y, &keys]);
        let weights = softmax(s, &scores, -1);
        let values = s.weights(&[64, 24]);
        let y = s.op("MatMul", &[&weights, &values]);
        s.op("Add", &[&x, &y])
    });
}

/// Weights of units over tokens, then of tokens over units.
#[test]
fn stored_units_that_all_tokens_share() {
    without(0, |s| {
        let x = sequence(s);
        let units = s.weights(&[24, 16]);
        let scores = s.op("MatMul", &[&x, &units]);
        let weights = softmax(s, &scores, 1);
        let sum = kept(s, "ReduceSum", &weights, &[2]);
        let weights = s.op("Div", &[&weights, &sum]);
        let values = s.weights(&[16, 24]);
        let y = s.op("MatMul", &[&weights, &values]);
        s.op("Add", &[&x, &y])
    });
}

#[test]
fn samples_that_a_table_of_times_shifts() {
    without(0, |s| {
        let x = pixels(s);
        let x = convolved(s, &x, &[HIDDEN, 3, 3, 3], 1);
        let time = s.input("t", DType::I64, &["batch"]);
        let table = s.weights(&[1000, HIDDEN]);
        let row = s.gather(&table, &time, 0);
        let row = s.unsqueeze(&row, &[2, 3]);
        let y = s.op("Add", &[&x, &row]);
        convolved(s, &y, &[3, HIDDEN, 3, 3], 1)
    });
}

/// The waves of a voice: sines of the sums of its frequencies.
#[test]
fn sines_of_sums_of_frequencies() {
    without(0, |s| {
        let f = s.input("f0", DType::F32, &["batch", "frames", "1"]);
        let overtones = s.floats(&[8], (1..9).map(f64::from));
        let all = s.op("Mul", &[&f, &overtones]);
        let axis = s.int(1);
        let phase = s.op("CumSum", &[&all, &axis]);
        let waves = s.op("Sin", &[&phase]);
        let y = linear(s, &waves, 8, 1);
        s.op("Tanh", &[&y])
    });
}

/// Parts of one vector that attend as tokens, with a table.
#[test]
fn a_table_of_the_parts_of_a_vector_is_found() {
    with_table(|s| {
        let x = vector(s);
        let x = linear(s, &x, 24, 16 * HIDDEN);
        let x = s.reshape(&x, &[0, 16, HIDDEN as i64]);
        let x = placed(s, &x);
        s.attends(&x, &x)
    });
}
