//! Biases by the offset of patches.

use super::*;

/// Tokens of the image.
const COUNT: usize = PATCHES as usize + 1;

/// The number of a pair, of which the class token is the first.
fn number(head: usize, query: usize, key: usize) -> f64 {
    let wave = |seed: usize| (1.7 * seed as f64).sin();
    match [query, key].map(|token| token.checked_sub(1)) {
        [Some(query), Some(key)] => {
            let [q, k] = [query, key].map(|patch| [patch / GRID, patch % GRID]);
            let row = k[0] + GRID - 1 - q[0];
            let column = k[1] + GRID - 1 - q[1];
            wave(100 * head + 10 * row + column)
        }
        [None, None] => 0.5,
        [None, _] => -0.25,
        _ => 0.75,
    }
}

/// Attention with a bias that is made so.
fn biased(s: &mut Sketch, x: &str, bias: impl Fn(&mut Sketch) -> String) -> String {
    let [q, k, v] = [(); 3].map(|()| s.headed(x));
    let k = s.transpose(&k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[&q, &k]);
    let bias = bias(s);
    let scores = s.op("Add", &[&scores, &bias]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    s.merged(&y)
}

/// A constant bias of these numbers.
fn stored(s: &mut Sketch, number: impl Fn(usize, usize, usize) -> f64) -> String {
    let all = (0..HEADS * COUNT * COUNT).map(|at| {
        let (head, pair) = (at / (COUNT * COUNT), at % (COUNT * COUNT));
        number(head, pair / COUNT, pair % COUNT)
    });
    s.floats(&[1, HEADS, COUNT, COUNT], all)
}

/// The window of the only bias by offsets.
fn window(model: &Model) -> Option<[usize; 2]> {
    use crate::detect::finding::Encoding;
    let found = crate::detect::detect(model, &crate::detect::Options::default());
    let mut windows = found.findings.iter().filter_map(|f| match &f.encoding {
        Encoding::ScoreBias(_, bias) => bias.window(),
        _ => None,
    });
    windows.next()
}

#[test]
fn a_bias_by_offsets_follows_the_grid() {
    let model = model(same, |s, y| biased(s, y, |s| stored(s, number)));
    assert_eq!(window(&model), Some([GRID, GRID]));
    for (size, grid) in [("12x8", [6, 4]), ("4x16", [2, 8]), ("8x10", [4, 5])] {
        let made = resized(&model, size).unwrap_or_else(|why| panic!("{size}: {why}"));
        assert_eq!(window(&made), Some(grid), "{size}");
    }
}

#[test]
fn equal_biases_that_are_stored_apart_follow_together() {
    let model = model(same, |s, y| {
        let y = biased(s, y, |s| stored(s, number));
        biased(s, &y, |s| stored(s, number))
    });
    let made = resized(&model, "12x8").unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(window(&made), Some([6, 4]));
    assert_eq!(dims_of(&made), [1, 25, HIDDEN]);
    let other = self::model(same, |s, y| {
        let y = biased(s, y, |s| stored(s, number));
        let mean = stored(s, number);
        let axes = [("axes", A::Ints(&[1, 2, 3])), ("keepdims", A::Int(0))];
        let mean = s.with("ReduceMean", &[&mean], &axes);
        s.op("Mul", &[&y, &mean])
    });
    let why = refusal("a copy that is no bias", &other, "12x8");
    assert!(why.contains("would keep the old rows"), "{why}");
}

#[test]
fn a_bias_that_is_not_by_offsets_alone_is_refused() {
    let says = "numbers for each token";
    let cases: [(&str, Change, &str); 5] = [
        (
            "a number for each pair",
            |s, y| biased(s, y, |s| s.weights(&[1, HEADS, COUNT, COUNT])),
            says,
        ),
        (
            "one pair of its own",
            |s, y| {
                let other = |h, q, k| number(h, q, k) + f64::from(u8::from((q, k) == (3, 5)));
                biased(s, y, |s| stored(s, other))
            },
            says,
        ),
        (
            "a number for each key",
            |s, y| biased(s, y, |s| s.weights(&[1, HEADS, 1, COUNT])),
            says,
        ),
        (
            "added to a mask of its own",
            |s, y| {
                biased(s, y, |s| {
                    let (a, b) = (stored(s, number), s.weights(&[1, 1, COUNT, COUNT]));
                    s.op("Add", &[&a, &b])
                })
            },
            says,
        ),
        (
            "read for something else",
            |s, y| {
                let bias = stored(s, number);
                let y = biased(s, y, |_| bias.clone());
                let mean = s.with(
                    "ReduceMean",
                    &[&bias],
                    &[("axes", A::Ints(&[1, 2, 3])), ("keepdims", A::Int(0))],
                );
                s.op("Mul", &[&y, &mean])
            },
            "is read here for something else",
        ),
    ];
    assert_refused(&cases);
}

#[test]
fn a_bias_that_is_interpolated_in_another_way_is_noticed() {
    use posenc_encodings::resize::Resizing;

    use crate::detect::context::Context;
    use crate::edit::resize::resize;
    use crate::plan::resize::{Wanted, plan};
    use crate::prove::resized::check;

    let model = model(same, |s, y| biased(s, y, |s| stored(s, number)));
    let found = detect(&model, &Options::default());
    let context = Context {
        model: &model,
        found: &found,
    };
    let size = "12x8".parse().expect("a size");
    let planned = plan(&context, &Request::default(), size).expect("a plan");
    let checked = |by: Resizing| {
        let mut other = planned.clone();
        if let Wanted::Image { by: own, .. } = &mut other.wanted {
            own.biases.by = by;
        }
        let (made, _) = resize(&context, &other).expect("a model");
        let after = detect(&made, &Options::default());
        let result = Context {
            model: &made,
            found: &after,
        };
        check(&context, &result, &planned).map_err(|why| why.to_string())
    };
    assert_eq!(checked(Resizing::Linear), Ok(()));
    let why = checked(Resizing::Cubic).expect_err("another formula");
    assert!(why.contains("would get another bias"), "{why}");
}
