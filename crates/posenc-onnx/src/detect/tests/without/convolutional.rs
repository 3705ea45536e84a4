//! Convolutions: what is added to their input is no encoding where nothing attends.

use super::*;

/// Channels of a picture after the first convolution.
const CHANNELS: usize = 16;

fn stem(s: &mut Sketch) -> String {
    let x = pixels(s);
    let x = convolved(s, &x, &[CHANNELS, 3, 3, 3], 1);
    s.op("Relu", &[&x])
}

/// Classes of a picture.
fn classified(s: &mut Sketch, x: &str) -> String {
    let x = s.op("GlobalAveragePool", &[x]);
    let x = s.op("Flatten", &[&x]);
    let (w, b) = (s.weights(&[CHANNELS, 10]), s.weights(&[10]));
    let y = s.op("Gemm", &[&x, &w, &b]);
    softmax(s, &y, 1)
}

#[test]
fn a_residual_classifier() {
    without(0, |s| {
        let mut x = stem(s);
        for _ in 0..3 {
            let y = convolved(s, &x, &[CHANNELS, CHANNELS, 3, 3], 1);
            let y = s.op("Relu", &[&y]);
            let y = convolved(s, &y, &[CHANNELS, CHANNELS, 3, 3], 1);
            x = s.op("Add", &[&x, &y]);
        }
        classified(s, &x)
    });
}

#[test]
fn skips_of_a_u_net() {
    without(0, |s| {
        let x = stem(s);
        let two = [2, 2];
        let attrs = [("kernel_shape", A::Ints(&two)), ("strides", A::Ints(&two))];
        let y = s.with("MaxPool", &[&x], &attrs);
        let y = convolved(s, &y, &[32, CHANNELS, 3, 3], 1);
        let scales = s.floats(&[4], [1.0, 1.0, 2.0, 2.0]);
        let y = s.with(
            "Resize",
            &[&y, "", &scales],
            &[("mode", A::Text("nearest"))],
        );
        let y = s.concat(&[&y, &x], 1);
        let y = convolved(s, &y, &[1, 32 + CHANNELS, 3, 3], 1);
        s.op("Sigmoid", &[&y])
    });
}

#[test]
fn wide_depthwise_kernels_before_a_layer_over_channels() {
    without(0, |s| {
        let x = pixels(s);
        let w = s.weights(&[HIDDEN, 3, 4, 4]);
        let mut x = s.with("Conv", &[&x, &w], &[("strides", A::Ints(&[4, 4]))]);
        for _ in 0..2 {
            let y = convolved(s, &x, &[HIDDEN, 1, 7, 7], HIDDEN);
            let y = s.transpose(&y, &[0, 2, 3, 1]);
            let y = forward(s, &y);
            let scale = s.weights(&[HIDDEN]);
            let y = s.op("Mul", &[&y, &scale]);
            let y = s.transpose(&y, &[0, 3, 1, 2]);
            x = s.op("Add", &[&x, &y]);
        }
        let x = reduced(s, "ReduceMean", &x, &[2, 3]);
        linear(s, &x, HIDDEN, 10)
    });
}

#[test]
fn squeeze_and_excitation() {
    without(0, |s| {
        let mut x = stem(s);
        for _ in 0..2 {
            let y = convolved(s, &x, &[CHANNELS, CHANNELS, 3, 3], 1);
            let gate = s.op("GlobalAveragePool", &[&y]);
            let gate = convolved(s, &gate, &[4, CHANNELS, 1, 1], 1);
            let gate = s.op("Relu", &[&gate]);
            let gate = convolved(s, &gate, &[CHANNELS, 4, 1, 1], 1);
            let gate = s.op("Sigmoid", &[&gate]);
            let y = s.op("Mul", &[&y, &gate]);
            x = s.op("Add", &[&x, &y]);
        }
        classified(s, &x)
    });
}

#[test]
fn gates_of_channels_and_of_places() {
    without(0, |s| {
        let x = stem(s);
        let (down, up) = (
            s.weights(&[4, CHANNELS, 1, 1]),
            s.weights(&[CHANNELS, 4, 1, 1]),
        );
        let [mean, most] = ["GlobalAveragePool", "GlobalMaxPool"].map(|pool| {
            let y = s.op(pool, &[&x]);
            let y = s.op("Conv", &[&y, &down]);
            let y = s.op("Relu", &[&y]);
            s.op("Conv", &[&y, &up])
        });
        let gate = s.op("Add", &[&mean, &most]);
        let gate = s.op("Sigmoid", &[&gate]);
        let x = s.op("Mul", &[&x, &gate]);
        let (mean, most) = (
            kept(s, "ReduceMean", &x, &[1]),
            kept(s, "ReduceMax", &x, &[1]),
        );
        let gate = s.concat(&[&mean, &most], 1);
        let gate = convolved(s, &gate, &[1, 2, 7, 7], 1);
        let gate = s.op("Sigmoid", &[&gate]);
        let x = s.op("Mul", &[&x, &gate]);
        classified(s, &x)
    });
}

#[test]
fn a_convolution_over_channels() {
    without(0, |s| {
        let x = stem(s);
        let gate = reduced(s, "ReduceMean", &x, &[3]);
        let gate = kept(s, "ReduceMean", &gate, &[2]);
        let gate = s.transpose(&gate, &[0, 2, 1]);
        let gate = convolved(s, &gate, &[1, 1, 3], 1);
        let gate = s.transpose(&gate, &[0, 2, 1]);
        let gate = s.unsqueeze(&gate, &[3]);
        let gate = s.op("Sigmoid", &[&gate]);
        let x = s.op("Mul", &[&x, &gate]);
        classified(s, &x)
    });
}

#[test]
fn the_weighted_mean_of_all_places_added_to_each() {
    without(0, |s| {
        let mut x = stem(s);
        for _ in 0..2 {
            let scores = convolved(s, &x, &[1, CHANNELS, 1, 1], 1);
            let scores = s.reshape(&scores, &[0, 1, -1]);
            let weights = softmax(s, &scores, -1);
            let weights = s.transpose(&weights, &[0, 2, 1]);
            let flat = s.reshape(&x, &[0, CHANNELS as i64, -1]);
            let mean = s.op("MatMul", &[&flat, &weights]);
            let mean = s.unsqueeze(&mean, &[3]);
            let y = convolved(s, &mean, &[CHANNELS, CHANNELS, 1, 1], 1);
            x = s.op("Add", &[&x, &y]);
        }
        classified(s, &x)
    });
}

/// A convolution of two taps over samples, the later of which is the sample itself.
fn causal(s: &mut Sketch, x: &str, weights: &[usize; 2], apart: i64) -> String {
    let w = s.weights(&[weights[0], weights[1], 2]);
    let (pads, apart) = ([apart, 0], [apart]);
    let attrs = [("pads", A::Ints(&pads)), ("dilations", A::Ints(&apart))];
    s.with("Conv", &[x, &w], &attrs)
}

#[test]
fn causal_convolutions_with_taps_further_and_further_apart() {
    without(0, |s| {
        let mut x = s.input("x", DType::F32, &["batch", "8", "samples"]);
        for apart in [1, 2, 4, 8] {
            let y = causal(s, &x, &[8, 8], apart);
            let y = s.op("Relu", &[&y]);
            let y = causal(s, &y, &[8, 8], apart);
            x = s.op("Add", &[&x, &y]);
        }
        convolved(s, &x, &[4, 8, 1], 1)
    });
}

#[test]
fn gated_convolutions_of_a_wave() {
    without(0, |s| {
        let x = s.input("wave", DType::F32, &["batch", "1", "samples"]);
        let mut x = convolved(s, &x, &[16, 1, 1], 1);
        let mut sum = convolved(s, &x, &[16, 16, 1], 1);
        for apart in [1, 2, 4] {
            let y = causal(s, &x, &[32, 16], apart);
            let parts = split(s, &y, &[16, 16], 1);
            let (signal, gate) = (s.op("Tanh", &[&parts[0]]), s.op("Sigmoid", &[&parts[1]]));
            let y = s.op("Mul", &[&signal, &gate]);
            let out = convolved(s, &y, &[16, 16, 1], 1);
            sum = s.op("Add", &[&sum, &out]);
            let y = convolved(s, &y, &[16, 16, 1], 1);
            x = s.op("Add", &[&x, &y]);
        }
        let y = convolved(s, &sum, &[64, 16, 1], 1);
        softmax(s, &y, 1)
    });
}

/// The columns and rows of a grid of this size, between two numbers.
fn grid(s: &mut Sketch, size: usize, ends: [f64; 2]) -> String {
    let step = (ends[1] - ends[0]) / (size - 1) as f64;
    let at = |i: usize| ends[0] + step * i as f64;
    let columns = (0..size * size).map(|i| at(i % size));
    let rows = (0..size * size).map(|i| at(i / size));
    s.floats(&[1, 2, size, size], columns.chain(rows))
}

#[test]
fn planes_of_coordinates_next_to_colors() {
    without(0, |s| {
        let x = s.input("pixels", DType::F32, &["1", "3", "32", "32"]);
        let planes = grid(s, 32, [-1.0, 1.0]);
        let x = s.concat(&[&x, &planes], 1);
        let x = convolved(s, &x, &[8, 5, 3, 3], 1);
        let x = s.op("Relu", &[&x]);
        convolved(s, &x, &[4, 8, 3, 3], 1)
    });
}

#[test]
fn distances_from_anchors_as_means_of_bins() {
    without(0, |s| {
        let x = s.input("pixels", DType::F32, &["1", "3", "32", "32"]);
        let w = s.weights(&[64, 3, 4, 4]);
        let x = s.with("Conv", &[&x, &w], &[("strides", A::Ints(&[4, 4]))]);
        let bins = s.reshape(&x, &[1, 4, 16, 64]);
        let bins = s.transpose(&bins, &[0, 2, 1, 3]);
        let weights = softmax(s, &bins, 1);
        let numbers = s.floats(&[1, 16, 1, 1], (0..16).map(f64::from));
        let sides = s.op("Conv", &[&weights, &numbers]);
        let sides = s.reshape(&sides, &[1, 4, 64]);
        let sides = split(s, &sides, &[2, 2], 1);
        let anchors = grid(s, 8, [0.5, 7.5]);
        let anchors = s.reshape(&anchors, &[1, 2, 64]);
        let (first, last) = (
            s.op("Sub", &[&anchors, &sides[0]]),
            s.op("Add", &[&anchors, &sides[1]]),
        );
        let boxes = s.concat(&[&first, &last], 1);
        let step = s.float(4.0);
        s.op("Mul", &[&boxes, &step])
    });
}

#[test]
fn pixels_sampled_on_a_turned_grid() {
    without(0, |s| {
        let x = s.input("pixels", DType::F32, &["1", "1", "16", "16"]);
        let w = s.weights(&[2, 1, 4, 4]);
        let y = s.with("Conv", &[&x, &w], &[("strides", A::Ints(&[4, 4]))]);
        let y = s.op("Flatten", &[&y]);
        let turn = linear(s, &y, 32, 6);
        let turn = s.reshape(&turn, &[1, 2, 3]);
        let turn = s.transpose(&turn, &[0, 2, 1]);
        let at = |i: usize| i as f64 / 7.5 - 1.0;
        let places = (0..256).flat_map(|i| [at(i % 16), at(i / 16), 1.0]);
        let places = s.floats(&[1, 256, 3], places);
        let places = s.op("MatMul", &[&places, &turn]);
        let places = s.reshape(&places, &[1, 16, 16, 2]);
        let y = s.op("GridSample", &[&x, &places]);
        convolved(s, &y, &[4, 1, 3, 3], 1)
    });
}

/// A convolved wave whose tokens attend, with a table.
#[test]
fn a_table_after_a_convolution_is_found() {
    with_table(|s| {
        let x = s.input("features", DType::F32, &["batch", "20", "frames"]);
        let x = convolved(s, &x, &[HIDDEN, 20, 3], 1);
        let x = s.op("Relu", &[&x]);
        let x = s.transpose(&x, &[0, 2, 1]);
        let x = placed(s, &x);
        s.attends(&x, &x)
    });
}

/// As many tokens as features, whose keys are those of a coarser map; the queries are of `change`.
fn coarser_keys(change: fn(&mut Sketch, &str) -> String) -> Model {
    let mut s = Sketch::default();
    let pixels = s.input("pixels", DType::F32, &["1", "3", "8", "12"]);
    let strides = [("strides", A::Ints(&[2, 2]))];
    let w = s.weights(&[HIDDEN, 3, 2, 2]);
    let map = s.with("Conv", &[&pixels, &w], &strides);
    let (w, bias) = (s.weights(&[HIDDEN, HIDDEN, 2, 2]), s.weights(&[HIDDEN]));
    let coarse = s.with("Conv", &[&map, &w, &bias], &strides);
    let [x, keys] = [(&map, 24), (&coarse, 6)].map(|(map, count)| {
        let flat = s.reshape(map, &[1, HIDDEN as i64, count]);
        s.transpose(&flat, &[0, 2, 1])
    });
    let [scale, shift] = [(); 2].map(|()| s.weights(&[HIDDEN]));
    let keys = s.op("LayerNormalization", &[&keys, &scale, &shift]);
    let x = change(&mut s, &x);
    let y = s.attends(&x, &keys);
    s.model(18, &[&y])
}

#[test]
fn weights_of_as_many_features_as_tokens_are_no_positions() {
    let model = coarser_keys(|_, x| x.to_owned());
    let read = found(&model);
    assert_eq!(read.attention.len(), 1);
    assert!(read.not_rotary.is_empty(), "{:?}", read.not_rotary);
    let model = coarser_keys(|s, x| {
        let own = s.weights(&[1, HIDDEN, 1]);
        s.op("Mul", &[x, &own])
    });
    assert_ne!(
        found(&model).not_rotary,
        [],
        "control: a number for each token"
    );
}
