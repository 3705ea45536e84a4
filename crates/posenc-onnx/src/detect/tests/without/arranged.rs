//! Attention within windows, along rows, between variates, samples or coarser keys.

use super::*;

/// Patches of pictures `[1, 3, 32, 32]` as `[1, 8, 8, HIDDEN]`.
fn patches(s: &mut Sketch) -> String {
    let x = s.input("pixels", DType::F32, &["1", "3", "32", "32"]);
    let w = s.weights(&[HIDDEN, 3, 4, 4]);
    let x = s.with("Conv", &[&x, &w], &[("strides", A::Ints(&[4, 4]))]);
    s.transpose(&x, &[0, 2, 3, 1])
}

const WIDTH: i64 = HIDDEN as i64;

#[test]
fn all_places_of_a_picture() {
    without(1, |s| {
        let x = patches(s);
        let x = s.reshape(&x, &[0, -1, WIDTH]);
        s.attends(&x, &x)
    });
}

#[test]
fn rows_and_then_columns() {
    without(2, |s| {
        let x = patches(s);
        let x = s.reshape(&x, &[8, 8, WIDTH]);
        let x = s.attends(&x, &x);
        let x = s.transpose(&x, &[1, 0, 2]);
        let x = s.attends(&x, &x);
        forward(s, &x)
    });
}

/// Squares of 4 by 4 patches, as sequences.
fn windows(s: &mut Sketch, x: &str) -> String {
    let x = s.reshape(x, &[1, 2, 4, 2, 4, WIDTH]);
    let x = s.transpose(&x, &[0, 1, 3, 2, 4, 5]);
    s.reshape(&x, &[4, 16, WIDTH])
}

#[test]
fn windows_without_a_bias() {
    without(1, |s| {
        let x = patches(s);
        let x = windows(s, &x);
        s.attends(&x, &x)
    });
}

/// Windows that wrap around the picture, whose mask parts what is not adjacent.
#[test]
fn shifted_windows_without_a_bias() {
    without(1, |s| {
        let mut x = patches(s);
        for axis in [1, 2] {
            let (first, last) = (s.slice(&x, axis, [0, 2, 1]), s.slice(&x, axis, [2, 99, 1]));
            x = s.concat(&[&last, &first], axis);
        }
        let x = windows(s, &x);
        attending(s, &x, &x, |s, scores| {
            let part = |i: usize| usize::from(i >= 4) + usize::from(i >= 6);
            let place = |w: usize, i: usize| [w / 2 * 4 + i / 4, w % 2 * 4 + i % 4].map(part);
            let cells = (0..4 * 256).map(|n| [n / 256, n / 16 % 16, n % 16]);
            let low = cells.map(|[w, i, j]| {
                if place(w, i) == place(w, j) {
                    0.0
                } else {
                    -100.0
                }
            });
            let mask = s.floats(&[4, 1, 16, 16], low);
            s.op("Add", &[&scores, &mask])
        })
    });
}

#[test]
fn keys_of_coarser_patches() {
    without(1, |s| {
        let x = patches(s);
        let coarse = s.transpose(&x, &[0, 3, 1, 2]);
        let w = s.weights(&[HIDDEN, HIDDEN, 2, 2]);
        let coarse = s.with("Conv", &[&coarse, &w], &[("strides", A::Ints(&[2, 2]))]);
        let coarse = s.reshape(&coarse, &[0, WIDTH, -1]);
        let coarse = s.transpose(&coarse, &[0, 2, 1]);
        let x = s.reshape(&x, &[0, -1, WIDTH]);
        attending(s, &x, &coarse, |_, scores| scores)
    });
}

#[test]
fn samples_of_a_batch_that_attend_to_each_other() {
    without(1, |s| {
        let x = s.input("x", DType::F32, &["batch", "8"]);
        let x = linear(s, &x, 8, HIDDEN);
        let x = s.unsqueeze(&x, &[0]);
        let x = s.attends(&x, &x);
        let axes = s.ints(&[0]);
        s.op("Squeeze", &[&x, &axes])
    });
}

#[test]
fn agents_whose_times_are_features() {
    without(1, |s| {
        let x = s.input("paths", DType::F32, &["batch", "agents", "10", "4"]);
        let x = s.reshape(&x, &[0, 0, 40]);
        let x = linear(s, &x, 40, HIDDEN);
        s.attends(&x, &x)
    });
}

#[test]
fn one_feature_of_each_column() {
    without(1, |s| {
        let x = s.input("columns", DType::F32, &["batch", "features"]);
        let x = s.unsqueeze(&x, &[2]);
        let x = linear(s, &x, 1, HIDDEN);
        s.attends(&x, &x)
    });
}

#[test]
fn points_that_attend() {
    without(1, |s| {
        let x = s.input("points", DType::F32, &["batch", "3", "points"]);
        let x = convolved(s, &x, &[HIDDEN, 3, 1], 1);
        let x = s.transpose(&x, &[0, 2, 1]);
        let x = s.attends(&x, &x);
        reduced(s, "ReduceMax", &x, &[1])
    });
}

#[test]
fn a_table_before_windows_is_found() {
    with_table(|s| {
        let x = patches(s);
        let x = s.reshape(&x, &[0, -1, WIDTH]);
        let table = s.weights(&[1, 64, HIDDEN]);
        let x = s.op("Add", &[&x, &table]);
        s.attends(&x, &x)
    });
}
