//! Attention within windows of the image, and images that are rolled before.

use super::*;

/// Patches on a side of the image.
const SIDE: i64 = 8;
const ALL: i64 = SIDE * SIDE;
const WIDTH: i64 = HIDDEN as i64;

/// Tokens that attend to each other, then a grid `[1, row, column, feature]` of them in windows of 2 × 2.
fn windows(grid: Change) -> Model {
    let mut s = Sketch::default();
    let pixels = s.input("pixels", DType::F32, &["1", "3", "16", "16"]);
    let w = s.weights(&[HIDDEN, 3, 2, 2]);
    let patches = s.with("Conv", &[&pixels, &w], &[("strides", A::Ints(&[2, 2]))]);
    let x = s.reshape(&patches, &[1, WIDTH, ALL]);
    let x = s.transpose(&x, &[0, 2, 1]);
    let table = s.weights(&[1, ALL as usize, HIDDEN]);
    let x = s.op("Add", &[&x, &table]);
    let x = s.attends(&x, &x);
    let x = s.reshape(&x, &[1, SIDE, SIDE, WIDTH]);
    let x = grid(&mut s, &x);
    let [one, two, width] = [1, 2, WIDTH].map(|n| s.ints(&[n]));
    let [down, across] = [1, 2].map(|axis| count(&mut s, &x, axis));
    let shape = s.concat(&[&one, &down, &two, &across, &two, &width], 0);
    let x = s.op("Reshape", &[&x, &shape]);
    let x = s.transpose(&x, &[0, 1, 3, 2, 4, 5]);
    let x = s.reshape(&x, &[-1, 4, WIDTH]);
    let y = s.attends(&x, &x);
    s.model(18, &[&y])
}

/// Windows along an axis, `[1]`.
fn count(s: &mut Sketch, x: &str, axis: i64) -> String {
    let shape = s.op("Shape", &[x]);
    let [axis, two] = [axis, 2].map(|n| s.ints(&[n]));
    let side = s.gather(&shape, &axis, 0);
    s.op("Div", &[&side, &two])
}

/// `torch.roll` along an axis by two slices.
fn rolled(s: &mut Sketch, x: &str, axis: i64, by: i64) -> String {
    let last = s.slice(x, axis, [by, i64::MAX, 1]);
    let first = s.slice(x, axis, [0, by, 1]);
    s.concat(&[&last, &first], axis)
}

#[test]
fn windows_follow_the_image_where_their_shifts_stay() {
    let models = [
        ("as they are", windows(|_, x| x.to_owned())),
        (
            "rolled",
            windows(|s, x| {
                let x = rolled(s, x, 1, 1);
                rolled(s, &x, 2, -1)
            }),
        ),
        (
            "rolled behind other windows",
            windows(|s, x| {
                let [one, two, width] = [1, 2, WIDTH].map(|n| s.ints(&[n]));
                let down = count(s, x, 1);
                let shape = s.op("Shape", &[x]);
                let axis = s.ints(&[2]);
                let across = s.gather(&shape, &axis, 0);
                let shape = s.concat(&[&one, &down, &two, &across, &width], 0);
                let y = s.op("Reshape", &[x, &shape]);
                let y = s.reshape(&y, &[1, SIDE, SIDE, WIDTH]);
                rolled(s, &y, 1, 1)
            }),
        ),
    ];
    for (name, model) in &models {
        for (size, windows) in [("32x16", 32), ("16x24", 24)] {
            let made = resized(model, size);
            let made = made.unwrap_or_else(|why| panic!("{name} {size}: {why}"));
            assert_eq!(dims_of(&made), [windows, 4, HIDDEN], "{name} {size}");
        }
        // One window down or across would not be shifted.
        for size in ["4x16", "4x4", "32x4"] {
            let why = refusal(name, model, size);
            let says = "may be shifted in another way";
            assert!(why.contains(says), "{name} {size}: {why}");
        }
    }
}

#[test]
fn what_is_no_roll_of_the_image_is_refused() {
    let cases: [(&str, Change); 4] = [
        ("cut at two places", |s, x| {
            let last = s.slice(x, 1, [1, i64::MAX, 1]);
            let first = s.slice(x, 1, [1, 2, 1]);
            s.concat(&[&last, &first], 1)
        }),
        ("the last rows left out", |s, x| {
            let last = s.slice(x, 1, [1, SIDE, 1]);
            let first = s.slice(x, 1, [0, 1, 1]);
            s.concat(&[&last, &first], 1)
        }),
        ("in the order that it had, but for a row", |s, x| {
            let first = s.slice(x, 1, [0, 2, 1]);
            let last = s.slice(x, 1, [3, i64::MAX, 1]);
            let again = s.slice(x, 1, [0, 1, 1]);
            let first = s.concat(&[&first, &again], 1);
            s.concat(&[&first, &last], 1)
        }),
        ("two images", |s, x| {
            let half = s.float(0.5);
            let other = s.op("Mul", &[x, &half]);
            let last = s.slice(x, 1, [1, i64::MAX, 1]);
            let first = s.slice(&other, 1, [0, 1, 1]);
            s.concat(&[&last, &first], 1)
        }),
    ];
    let says = "this Slice acts along an axis";
    for (name, grid) in cases {
        let why = refusal(name, &windows(grid), "32x16");
        assert!(why.contains(says), "{name}: {why}");
    }
    for by in [6, -6] {
        let far: Change = match by {
            6 => |s, x| rolled(s, x, 1, 6),
            _ => |s, x| rolled(s, x, 1, -6),
        };
        let model = windows(far);
        assert_eq!(resized(&model, "32x16").map(|_| ()), Ok(()), "{by}");
        let why = refusal("by more rows than there are", &model, "8x16");
        assert!(why.contains(says), "{by}: {why}");
    }
}

#[test]
fn rows_in_one_axis_are_rolled_where_their_length_stays() {
    let model = windows(|s, x| {
        let x = s.reshape(x, &[1, ALL, WIDTH]);
        let x = rolled(s, &x, 1, SIDE);
        s.reshape(&x, &[1, SIDE, SIDE, WIDTH])
    });
    let made = resized(&model, "32x16");
    let made = made.unwrap_or_else(|why| panic!("more rows: {why}"));
    assert_eq!(dims_of(&made), [32, 4, HIDDEN]);
    let why = refusal("longer rows", &model, "16x32");
    assert!(why.contains("this Slice acts along an axis"), "{why}");
}
