//! Biases by the offset of patches.

use posenc_encodings::resize::Antialias;

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
fn smoothing_is_of_tables_and_not_of_biases() {
    let smoothed = |table: fn(&mut Sketch) -> String| {
        let biased = |s: &mut Sketch, y: &str| biased(s, y, |s| stored(s, number));
        let model = with_table(table, same, biased);
        let mut request = Request::default();
        request.parameters.image_size = Some("12x8".parse().expect("a size"));
        request.parameters.antialias = Antialias::On;
        let done = plan(&model, request, &[]).and_then(|planned| planned.apply());
        done.map(drop).map_err(|why| why.to_string())
    };
    let why = smoothed(|s| s.float(0.0)).expect_err("no table");
    assert!(why.contains("`antialias` has no effect"), "{why}");
    assert_eq!(smoothed(table), Ok(()));
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

/// A bias whose pairs pick rows, `[offset, head]`: those of patches by their offset, and three of the class token.
fn picked(s: &mut Sketch, rows: &str) -> String {
    let side = 2 * GRID - 1;
    let row = |pair: usize| {
        let tokens = [pair / COUNT, pair % COUNT].map(|token| token.checked_sub(1));
        let at = match tokens {
            [Some(query), Some(key)] => {
                let [q, k] = [query, key].map(|patch| [patch / GRID, patch % GRID]);
                (k[0] + GRID - 1 - q[0]) * side + k[1] + GRID - 1 - q[1]
            }
            [None, None] => side * side,
            [None, _] => side * side + 1,
            _ => side * side + 2,
        };
        at as i64
    };
    let index: Vec<i64> = (0..COUNT * COUNT).map(row).collect();
    let index = s.ints(&index);
    let bias = s.gather(rows, &index, 0);
    let count = COUNT as i64;
    let bias = s.reshape(&bias, &[1, count, count, HEADS as i64]);
    s.transpose(&bias, &[0, 3, 1, 2])
}

/// Rows of a table of offsets and of the class token.
const ROWS: usize = (2 * GRID - 1).pow(2) + 3;

/// A stored table by a number.
fn scaled_table(s: &mut Sketch) -> String {
    let (rows, half) = (s.weights(&[ROWS, HEADS]), s.floats(&[1], [0.5]));
    s.op("Mul", &[&rows, &half])
}

/// Two layers on stored places, as of continuous position biases.
fn network(s: &mut Sketch) -> String {
    let (places, first) = (s.weights(&[ROWS, 2]), s.weights(&[2, 8]));
    let hidden = s.op("MatMul", &[&places, &first]);
    let hidden = s.op("Relu", &[&hidden]);
    let last = s.weights(&[8, HEADS]);
    s.op("MatMul", &[&hidden, &last])
}

fn bounded_table(s: &mut Sketch) -> String {
    let rows = s.weights(&[ROWS, HEADS]);
    s.op("Sigmoid", &[&rows])
}

#[test]
fn a_bias_that_a_formula_gives_is_not_interpolated() {
    let biased_by = |rows: Change| {
        let model = model(rows, same);
        assert_eq!(window(&model), Some([GRID, GRID]));
        model
    };
    let table = biased_by(|s, x| {
        biased(s, x, |s| {
            let rows = scaled_table(s);
            picked(s, &rows)
        })
    });
    let made = resized(&table, "12x8").unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(window(&made), Some([6, 4]));
    let formulas: [Change; 2] = [
        |s, x| {
            biased(s, x, |s| {
                let rows = network(s);
                picked(s, &rows)
            })
        },
        |s, x| {
            biased(s, x, |s| {
                let rows = bounded_table(s);
                picked(s, &rows)
            })
        },
    ];
    for formula in formulas {
        let why = refusal("a formula", &biased_by(formula), "12x8");
        assert!(why.contains("is computed here by a formula"), "{why}");
    }
}

/// A number for each distance of patches; where `is_learned`, for each number of rows and of columns between them.
fn by_distance(query: usize, key: usize, is_learned: bool) -> f64 {
    let patches = [query, key].map(|token| token.checked_sub(1));
    let [Some(q), Some(k)] = patches else {
        return 0.0;
    };
    let side = |of: fn(usize) -> usize| of(q).abs_diff(of(k)) as f64;
    let (rows, columns) = (side(|p| p / GRID), side(|p| p % GRID));
    match is_learned {
        true => (17.0 * rows + 5.0 * columns).sin(),
        false => -0.25 * rows.hypot(columns),
    }
}

#[test]
fn a_bias_by_distance_is_not_interpolated() {
    let model = model(same, |s, y| {
        biased(s, y, |s| stored(s, |_, q, k| by_distance(q, k, false)))
    });
    let why = refusal("distances", &model, "12x8");
    assert!(why.contains("follows from their distance alone"), "{why}");
    let learned = self::model(same, |s, y| {
        biased(s, y, |s| stored(s, |_, q, k| by_distance(q, k, true)))
    });
    resized(&learned, "12x8").expect("one number for each of rows and columns between them");
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

/// What is different in a graph that computes its bias from the size of the image.
#[derive(Clone, Copy)]
struct Computed {
    /// How the table of offsets is resized.
    mode: &'static str,
    /// Whether the width of the grid is written down.
    is_written: bool,
}

impl Computed {
    const RIGHT: Self = Self {
        mode: "linear",
        is_written: false,
    };

    /// The bias, `[1, heads, query, key]`, of which the pairs of the class token are all 0.5.
    fn bias(self, s: &mut Sketch) -> String {
        let [one, two] = [1, 2].map(|n| s.ints(&[n]));
        let shape = s.op("Shape", &["pixels"]);
        let [height, mut width] = [2, 3].map(|axis| {
            let axis = s.ints(&[axis]);
            let pixels = s.gather(&shape, &axis, 0);
            s.op("Div", &[&pixels, &two])
        });
        if self.is_written {
            width = s.ints(&[GRID as i64]);
        }
        let [tall, wide] = [&height, &width].map(|side| {
            let double = s.op("Mul", &[side, &two]);
            s.op("Sub", &[&double, &one])
        });
        let side = 2 * GRID - 1;
        let numbers = (0..HEADS * side * side).map(|at| {
            let (head, place) = (at / (side * side), at % (side * side));
            (1.7 * (100 * head + 10 * (place / side) + place % side) as f64).sin()
        });
        let table = s.floats(&[1, HEADS, side, side], numbers);
        let lead = s.ints(&[1, HEADS as i64]);
        let sizes = s.concat(&[&lead, &tall, &wide], 0);
        let how = [
            ("mode", A::Text(self.mode)),
            ("coordinate_transformation_mode", A::Text("half_pixel")),
        ];
        let table = s.with("Resize", &[&table, "", "", &sizes], &how);
        let table = s.reshape(&table, &[HEADS as i64, -1]);
        // Counted with the class token, which is left out again.
        let count = s.op("Mul", &[&height, &width]);
        let count = s.op("Add", &[&count, &one]);
        let axes = s.ints(&[0]);
        let count = s.op("Squeeze", &[&count, &axes]);
        let [zero, step] = [0, 1].map(|n| s.int(n));
        let places = s.op("Range", &[&zero, &count, &step]);
        let places = s.slice(&places, 0, [1, i64::MAX, 1]);
        let places = s.op("Sub", &[&places, &one]);
        let rows = s.op("Div", &[&places, &width]);
        let whole = s.op("Mul", &[&rows, &width]);
        let columns = s.op("Sub", &[&places, &whole]);
        let [down, across] = [(&rows, &height), (&columns, &width)].map(|(place, side)| {
            let [keys, queries] = [0, 1].map(|axis| s.unsqueeze(place, &[axis]));
            let far = s.op("Sub", &[&keys, &queries]);
            let far = s.op("Add", &[&far, side]);
            s.op("Sub", &[&far, &one])
        });
        let index = s.op("Mul", &[&down, &wide]);
        let index = s.op("Add", &[&index, &across]);
        let bias = s.gather(&table, &index, 1);
        let (pads, edge) = (s.ints(&[0, 1, 1, 0, 0, 0]), s.float(0.5));
        let bias = s.op("Pad", &[&bias, &pads, &edge]);
        s.unsqueeze(&bias, &[0])
    }
}

#[test]
fn a_bias_that_the_graph_computes_for_the_image_is_compared_with_the_formula() {
    let right = model(same, |s, y| biased(s, y, |s| Computed::RIGHT.bias(s)));
    assert_eq!(window(&right), Some([GRID, GRID]));
    for (size, grid) in [("12x8", [6, 4]), ("4x16", [2, 8]), ("8x10", [4, 5])] {
        let made = resized(&right, size).unwrap_or_else(|why| panic!("{size}: {why}"));
        assert_eq!(window(&made), Some(grid), "{size}");
    }
    let another = model(same, |s, y| {
        let mode = "cubic";
        biased(s, y, |s| {
            Computed {
                mode,
                ..Computed::RIGHT
            }
            .bias(s)
        })
    });
    let why = refusal("another interpolation", &another, "12x8");
    assert!(why.contains("in another way than is asked for"), "{why}");
    let written = model(same, |s, y| {
        let is_written = true;
        biased(s, y, |s| {
            Computed {
                is_written,
                ..Computed::RIGHT
            }
            .bias(s)
        })
    });
    refusal("a width that does not follow", &written, "8x12");
    let read = model(same, |s, y| {
        let bias = Computed::RIGHT.bias(s);
        let y = biased(s, y, |_| bias.clone());
        let axes = [("axes", A::Ints(&[1, 2, 3])), ("keepdims", A::Int(0))];
        let mean = s.with("ReduceMean", &[&bias], &axes);
        s.op("Mul", &[&y, &mean])
    });
    let why = refusal("read for something else", &read, "12x8");
    assert!(why.contains("this Slice acts along an axis"), "{why}");
}
