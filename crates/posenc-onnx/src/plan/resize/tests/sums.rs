//! Sums over tokens.

use super::*;

#[test]
fn a_sum_over_tokens_is_refused() {
    let cases: [(&str, Change, &str); 8] = [
        (
            "over all axes, of which none is named",
            |s, y| {
                let none = s.ints(&[]);
                s.op("ReduceSum", &[y, &none])
            },
            "this ReduceSum acts along an axis",
        ),
        (
            "of squares",
            |s, y| s.with("ReduceSumSquare", &[y], &[("axes", A::Ints(&[1]))]),
            "this ReduceSumSquare acts along an axis",
        ),
        (
            "of exponentials",
            |s, y| s.with("ReduceLogSumExp", &[y], &[("axes", A::Ints(&[1]))]),
            "this ReduceLogSumExp acts along an axis",
        ),
        (
            "as the output",
            |s, y| {
                let axes = s.ints(&[1]);
                s.op("ReduceSum", &[y, &axes])
            },
            "this ReduceSum acts along an axis",
        ),
        (
            "of powers",
            |s, y| {
                let y = s.transpose(y, &[0, 2, 1]);
                s.op("GlobalLpPool", &[&y])
            },
            "this GlobalLpPool acts along an axis",
        ),
        (
            "written as an equation",
            |s, y| s.with("Einsum", &[y], &[("equation", A::Text("bte->be"))]),
            "this Einsum acts along an axis",
        ),
        (
            "that divides other numbers",
            |s, y| {
                let axes = s.ints(&[1]);
                let sum = s.op("ReduceSum", &[y, &axes]);
                let half = s.float(0.5);
                let other = s.op("Mul", &[y, &half]);
                s.op("Div", &[&other, &sum])
            },
            "this ReduceSum acts along an axis",
        ),
        (
            "that is divided",
            |s, y| {
                let axes = s.ints(&[1]);
                let sum = s.op("ReduceSum", &[y, &axes]);
                s.op("Div", &[&sum, y])
            },
            "this ReduceSum acts along an axis",
        ),
    ];
    assert_refused(&cases);
}

#[test]
fn what_sums_no_tokens_follows() {
    let cases: [(&str, Change, [usize; 3]); 3] = [
        (
            "over features",
            |s, y| {
                let axes = s.ints(&[2]);
                s.op("ReduceSum", &[y, &axes])
            },
            [1, 25, 1],
        ),
        (
            "over no axis",
            |s, y| {
                let none = s.ints(&[]);
                s.with(
                    "ReduceSum",
                    &[y, &none],
                    &[("noop_with_empty_axes", A::Int(1))],
                )
            },
            [1, 25, HIDDEN],
        ),
        (
            "turned by an equation",
            |s, y| s.with("Einsum", &[y], &[("equation", A::Text("bte->bet"))]),
            [1, HIDDEN, 25],
        ),
    ];
    for (name, after, dims) in cases {
        let made = resized(&model(same, after), "12x8");
        let made = made.unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(dims_of(&made), dims, "{name}");
    }
}
