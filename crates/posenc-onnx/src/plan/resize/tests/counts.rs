//! Numbers that follow from the number of tokens, and operators that act on all of them.

use super::*;

fn mean(s: &mut Sketch, y: &str) -> String {
    s.with("ReduceMean", &[y], &[("axes", A::Ints(&[1]))])
}

#[test]
fn what_may_follow_from_the_number_of_tokens_is_refused() {
    let cases: [(&str, Change, &str); 10] = [
        (
            "a mean times a root",
            |s, y| {
                let mean = mean(s, y);
                let root = s.float((PATCHES as f64 + 1.0).sqrt());
                s.op("Mul", &[&mean, &root])
            },
            "which may follow from 17",
        ),
        (
            "a logarithm",
            |s, y| {
                let mean = mean(s, y);
                let log = s.float((PATCHES as f64 + 1.0).ln());
                s.op("Sub", &[&mean, &log])
            },
            "which may follow from 17",
        ),
        (
            "an unbiased variance",
            |s, y| {
                let mean = mean(s, y);
                let share = s.float(16.0 / 15.0);
                s.op("Mul", &[&mean, &share])
            },
            "which may follow from 16",
        ),
        (
            "a pool of parts",
            |s, y| {
                let map = map(s, y);
                let attrs = [
                    ("kernel_shape", A::Ints(&[2, 2])),
                    ("strides", A::Ints(&[2, 2])),
                ];
                s.with("MaxPool", &[&map], &attrs)
            },
            "this MaxPool acts along an axis",
        ),
        (
            "the largest token",
            |s, y| s.with("ArgMax", &[y], &[("axis", A::Int(1))]),
            "this ArgMax acts along an axis",
        ),
        (
            "the largest numbers",
            |s, y| {
                let count = s.ints(&[4]);
                s.many("TopK", &[y, &count], &[("axis", A::Int(1))], 2)[0].clone()
            },
            "this TopK acts along an axis",
        ),
        (
            "filled up on one side",
            |s, y| {
                let map = map(s, y);
                let pads = s.ints(&[0, 0, 0, 0, 0, 0, 1, 1]);
                s.op("Pad", &[&map, &pads])
            },
            "this Pad acts along an axis",
        ),
        (
            "filled up behind by a convolution",
            |s, y| padded(s, y, 1),
            "this Conv acts along an axis",
        ),
        (
            "one window",
            |s, y| {
                let map = map(s, y);
                let side = GRID as i64;
                s.reshape(&map, &[1, HIDDEN as i64, 1, side, 1, side])
            },
            "this Reshape groups elements by sizes that do not follow",
        ),
        (
            "an image of the old size",
            |s, y| {
                let first = s.int(0);
                let class = s.gather(y, &first, 1);
                let w = s.weights(&[HIDDEN, 64]);
                let pixels = s.op("MatMul", &[&class, &w]);
                s.reshape(&pixels, &[1, 8, 8])
            },
            "has as many elements as the old image",
        ),
    ];
    assert_refused(&cases);
}

/// A map convolved with a kernel of this size, with one row and one column behind.
fn padded(s: &mut Sketch, y: &str, kernel: usize) -> String {
    let map = map(s, y);
    let w = s.weights(&[HIDDEN, HIDDEN, kernel, kernel]);
    s.with("Conv", &[&map, &w], &[("pads", A::Ints(&[0, 0, 1, 1]))])
}

#[test]
fn pads_of_a_kernel_of_even_size_follow() {
    let made = resized(&model(same, |s, y| padded(s, y, 2)), "4x16").expect("a map");
    assert_eq!(dims_of(&made), [1, HIDDEN, 2, 8]);
}

#[test]
fn a_map_of_patches_in_another_grid_follows() {
    let made = resized(
        &model(same, |s, y| {
            let y = s.slice(y, 1, [1, i64::MAX, 1]);
            let each = s.with(
                "ReduceMean",
                &[&y],
                &[("axes", A::Ints(&[2])), ("keepdims", A::Int(0))],
            );
            let side = GRID as i64;
            s.reshape(&each, &[1, 1, side, side])
        }),
        "4x16",
    );
    let made = made.expect("a map");
    assert_eq!(dims_of(&made), [1, 1, 2, 8]);
}

/// Attention whose scores are multiplied by this number.
fn scaled(s: &mut Sketch, x: &str, by: f64) -> String {
    let [q, k, v] = [(); 3].map(|()| s.headed(x));
    let k = s.transpose(&k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[&q, &k]);
    let by = s.float(by);
    let scores = s.op("Mul", &[&scores, &by]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    s.merged(&y)
}

#[test]
fn scores_that_are_scaled_by_the_number_of_keys_are_refused() {
    assert_refused(&[
        (
            "by its logarithm",
            |s, y| scaled(s, y, (PATCHES as f64).ln() / (SIZE as f64).sqrt()),
            "scores are scaled by",
        ),
        (
            "by a temperature",
            |s, y| scaled(s, y, 0.3),
            "scores are scaled by",
        ),
    ]);
    let usual: [Change; 2] = [
        |s, y| scaled(s, y, 1.0 / (SIZE as f64).sqrt()),
        |s, y| scaled(s, y, 1.0 / SIZE as f64),
    ];
    for (at, after) in usual.into_iter().enumerate() {
        let made = resized(&model(same, after), "12x8");
        made.unwrap_or_else(|why| panic!("{at}: {why}"));
    }
}

#[test]
fn numbers_near_a_count_are_not_taken_for_it() {
    let cases: [(&str, Change); 4] = [
        ("16.9", |s, y| times(s, y, 16.9)),
        ("17.001", |s, y| times(s, y, 17.001)),
        ("1/18", |s, y| times(s, y, 1.0 / 18.0)),
        ("255", |s, y| times(s, y, 255.0)),
    ];
    for (number, after) in cases {
        let made = resized(&model(same, after), "12x8");
        made.unwrap_or_else(|why| panic!("{number}: {why}"));
    }
    assert_refused(&[("17", |s, y| times(s, y, 17.0), "which may follow from 17")]);
}

fn times(s: &mut Sketch, y: &str, number: f64) -> String {
    let number = s.float(number);
    s.op("Mul", &[y, &number])
}
