//! Tables that sequences do not read from the first row on, one row after another.

use super::*;

/// Rows of a table of 40 are added to the stream.
fn read(s: &mut Sketch, x: &str, index: &str) -> String {
    let table = s.weights(&[40, HIDDEN]);
    let rows = s.gather(&table, index, 0);
    s.op("Add", &[x, &rows])
}

/// The number of tokens of a stream, `[1]`.
fn count(s: &mut Sketch, x: &str) -> String {
    let (shape, one) = (s.op("Shape", &[x]), s.ints(&[1]));
    s.gather(&shape, &one, 0)
}

/// A stream with one more token before the others.
fn headed(s: &mut Sketch, x: &str) -> String {
    let first = s.slice(x, 1, [0, 1, 1]);
    s.concat(&[&first, x], 1)
}

/// A row for the token before the others, and one for each of them from `from` on.
fn joined(s: &mut Sketch, first: i64, from: i64) -> String {
    let (at, first, from) = (s.range(), s.ints(&[first]), s.int(from));
    let at = s.op("Add", &[&at, &from]);
    s.concat(&[&first, &at], 0)
}

/// Places of which those from `LATE` on are `MORE` rows further.
fn jumping<const LATE: i64, const MORE: i64>(s: &mut Sketch, x: String) -> String {
    let (at, late, more) = (s.range(), s.int(LATE), s.int(MORE));
    let is_late = s.op("GreaterOrEqual", &[&at, &late]);
    let later = s.op("Add", &[&at, &more]);
    let at = s.op("Where", &[&is_late, &later, &at]);
    read(s, &x, &at)
}

#[test]
fn steps_of_other_sizes_end_with_the_last_row() {
    let double = limiting(|s, x| {
        let (at, two) = (s.range(), s.int(2));
        let at = s.op("Mul", &[&at, &two]);
        read(s, &x, &at)
    });
    assert_eq!(double, [20]);
    let half = limiting(|s, x| {
        let (at, two) = (s.range(), s.int(2));
        let at = s.op("Div", &[&at, &two]);
        read(s, &x, &at)
    });
    assert_eq!(half, [80]);
    let third = limiting(|s, x| {
        let (at, three) = (s.range(), s.int(3));
        let at = s.op("Div", &[&at, &three]);
        read(s, &x, &at)
    });
    assert_eq!(third, [120]);
    assert_eq!(limiting(jumping::<30, 5>), [35]);
    assert_eq!(limiting(jumping::<12, 20>), [20]);
    let held = limiting(|s, x| {
        let (at, last) = (s.range(), s.int(39));
        let at = s.op("Min", &[&at, &last]);
        read(s, &x, &at)
    });
    assert!(held.is_empty(), "control: {held:?}");
}

#[test]
fn a_token_before_the_others_may_read_any_row() {
    let last = limiting(|s, x| {
        let (x, at) = (headed(s, &x), joined(s, 39, 0));
        read(s, &x, &at)
    });
    assert_eq!(last, [40]);
    let first = limiting(|s, x| {
        let (x, at) = (headed(s, &x), joined(s, 0, 1));
        read(s, &x, &at)
    });
    assert_eq!(first, [39]);
    // An index for each element of the rows, which are wider than there are tokens.
    let elements = limiting(|s, x| {
        let (x, at) = (headed(s, &x), joined(s, 0, 1));
        let (at, shape) = (s.unsqueeze(&at, &[1]), s.ints(&[1, 64]));
        let at = s.op("Expand", &[&at, &shape]);
        let table = s.weights(&[40, 64]);
        let rows = s.op("GatherElements", &[&table, &at]);
        let rows = s.slice(&rows, 1, [0, HIDDEN as i64, 1]);
        s.op("Add", &[&x, &rows])
    });
    assert_eq!(elements, [39]);
}

#[test]
fn stored_places_that_fall_end_as_they_are_cut() {
    let falling = limiting(|s, x| {
        let places: Vec<i64> = (0..40).rev().collect();
        let (places, count, zero) = (s.ints(&places), count(s, &x), s.ints(&[0]));
        let at = s.op("Slice", &[&places, &zero, &count, &zero]);
        read(s, &x, &at)
    });
    assert_eq!(falling, [40]);
}

/// The rows of a table of 40 from a place on, which each token moves back.
fn cut(s: &mut Sketch, x: &str, is_centred: bool) -> String {
    let (count, all, two) = (count(s, x), s.ints(&[40]), s.ints(&[2]));
    let start = s.op("Sub", &[&all, &count]);
    let (start, end) = match is_centred {
        true => {
            let start = s.op("Div", &[&start, &two]);
            let end = s.op("Add", &[&start, &count]);
            (start, end)
        }
        false => (start, s.ints(&[i64::MAX])),
    };
    let (table, zero) = (s.weights(&[40, HIDDEN]), s.ints(&[0]));
    let rows = s.op("Slice", &[&table, &start, &end, &zero]);
    s.op("Add", &[x, &rows])
}

#[test]
fn rows_that_are_cut_from_the_middle_or_the_end_are_as_many_as_tokens() {
    assert_eq!(limiting(|s, x| cut(s, &x, true)), [40]);
    assert_eq!(limiting(|s, x| cut(s, &x, false)), [40]);
    let [centre, end] = [
        limiting(|s, x| {
            let x = headed(s, &x);
            cut(s, &x, true)
        }),
        limiting(|s, x| {
            let x = headed(s, &x);
            cut(s, &x, false)
        }),
    ];
    assert_eq!((centre, end), (vec![39], vec![39]));
}

/// Rows of a table of so many, cut in steps.
fn stepped<const ROWS: usize, const STEP: i64>(s: &mut Sketch, x: String) -> String {
    let (count, zero, step) = (count(s, &x), s.ints(&[0]), s.ints(&[STEP]));
    let end = s.op("Mul", &[&count, &step]);
    let table = s.weights(&[ROWS, HIDDEN]);
    let rows = s.op("Slice", &[&table, &zero, &end, &zero, &step]);
    s.op("Add", &[&x, &rows])
}

#[test]
fn rows_that_are_cut_in_steps_end_with_the_last_that_is_read() {
    assert_eq!(limiting(stepped::<40, 1>), [40]);
    assert_eq!(limiting(stepped::<40, 2>), [20]);
    // The last row that is read is 38 of 39, before the end of the cut.
    assert_eq!(limiting(stepped::<39, 2>), [20]);
    assert_eq!(limiting(stepped::<61, 3>), [21]);
}

/// Biases by distance from a table of 40, which are held from -12 down and from `MOST` up.
fn held<const MOST: i64>(s: &mut Sketch, x: String) -> String {
    let (distance, least) = (s.distance(), s.int(-12));
    let (most, up) = (s.int(MOST), s.int(12));
    let distance = s.op("Clip", &[&distance, &least, &most]);
    let index = s.op("Add", &[&distance, &up]);
    let table = s.weights(&[40, 1]);
    let bias = s.gather(&table, &index, 0);
    let bias = s.transpose(&bias, &[2, 0, 1]);
    let [scores, v] = s.scored(&x, &x);
    let scores = s.op("Add", &[&scores, &bias]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    s.merged(&y)
}

#[test]
fn distances_that_are_held_at_one_end_leave_the_table_at_the_other() {
    assert_eq!(limiting(held::<60>), [28]);
    assert!(limiting(held::<27>).is_empty(), "control");
}

/// What is held where rows are cut around the middle of a table.
#[derive(Clone, Copy, PartialEq)]
enum Held {
    Nothing,
    Cut,
    Both,
    /// Both, and the largest number of the rows is read too.
    BothBesideMost,
}

/// Biases by distance from the rows around the middle of a table of 40: as many on each side as there are tokens, or
/// as there are rows.
fn around(s: &mut Sketch, x: &str, held: Held) -> String {
    let count = count(s, x);
    let half = s.ints(&[20]);
    let span = match held {
        Held::Nothing => count,
        _ => s.op("Min", &[&count, &half]),
    };
    let (start, end) = (s.op("Sub", &[&half, &span]), s.op("Add", &[&half, &span]));
    let (table, zero, one) = (s.weights(&[40, 1]), s.ints(&[0]), s.ints(&[1]));
    let rows = s.op("Slice", &[&table, &start, &end, &zero]);
    let distance = s.distance();
    let mut index = s.op("Add", &[&distance, &span]);
    if matches!(held, Held::Both | Held::BothBesideMost) {
        let (least, most) = (s.int(0), s.op("Add", &[&span, &span]));
        let most = s.op("Sub", &[&most, &one]);
        let most = s.reshape(&most, &[]);
        index = s.op("Clip", &[&index, &least, &most]);
    }
    let mut bias = s.gather(&rows, &index, 0);
    if held == Held::BothBesideMost {
        let most = s.with("ReduceMax", &[&rows], &[("keepdims", A::Int(0))]);
        bias = s.op("Add", &[&bias, &most]);
    }
    let bias = s.transpose(&bias, &[2, 0, 1]);
    let [scores, v] = s.scored(x, x);
    let scores = s.op("Add", &[&scores, &bias]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    s.merged(&y)
}

#[test]
fn a_cut_around_the_middle_is_no_limit_where_it_and_its_index_are_held() {
    assert!(limiting(|s, x| around(s, &x, Held::Both)).is_empty());
    assert_eq!(limiting(|s, x| around(s, &x, Held::Cut)), [20]);
    assert_eq!(limiting(|s, x| around(s, &x, Held::BothBesideMost)), [20]);
    assert_eq!(limiting(|s, x| around(s, &x, Held::Nothing)), [20]);
}
