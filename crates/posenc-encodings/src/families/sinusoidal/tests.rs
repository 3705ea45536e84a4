use ndarray::{Array2, s};

use super::*;

fn plain(dim: usize, layout: Layout, denominator: Denominator) -> Sinusoidal {
    Sinusoidal {
        dim,
        layout,
        cosines_first: false,
        denominator,
        base: 10000.0,
        factor: 1.0,
        amplitude: 1.0,
        max_positions: None,
        offset: 0,
        image: None,
    }
}

fn positions(n: usize) -> Vec<f64> {
    (0..n).map(|p| p as f64).collect()
}

fn single() -> Precision {
    Precision::of(None)
}

/// Rows as float32 holds them.
fn rounded(rows: Array2<f64>) -> Array2<f64> {
    rows.mapv(|v| f64::from(v as f32))
}

#[test]
fn neighbors_differ_most_in_the_first_dimensions() {
    // A published figure, cut after four digits.
    let rows = plain(32, Layout::Interleaved, Denominator::Pairs).reference(&[0.0, 1.0]);
    let cosine = |columns: std::ops::RangeInclusive<usize>| {
        let part = rows.slice(s![.., columns]);
        let (a, b) = (part.row(0), part.row(1));
        let cosine = a.dot(&b) / (a.dot(&a) * b.dot(&b)).sqrt();
        (cosine * 1e4).floor() / 1e4
    };
    assert_eq!((cosine(0..=4), cosine(27..=31)), (0.6769, 0.9999));
}

#[test]
fn what_is_written_is_read_again() {
    let half = || plain(24, Layout::Half, Denominator::Pairs);
    let cases = [
        ("sines first", half()),
        (
            "in turn",
            plain(24, Layout::Interleaved, Denominator::Pairs),
        ),
        (
            "one less",
            plain(24, Layout::Half, Denominator::PairsLessOne),
        ),
        (
            "another base",
            Sinusoidal {
                base: 500.0,
                ..half()
            },
        ),
        (
            "from two on",
            Sinusoidal {
                offset: 2,
                ..half()
            },
        ),
        (
            "far out",
            Sinusoidal {
                offset: 300,
                ..half()
            },
        ),
        (
            "scaled",
            Sinusoidal {
                amplitude: 0.125,
                ..half()
            },
        ),
        (
            "stretched",
            Sinusoidal {
                factor: 4.0,
                ..half()
            },
        ),
        (
            "cosines first",
            Sinusoidal {
                cosines_first: true,
                ..half()
            },
        ),
        (
            "odd, padded",
            plain(25, Layout::Half, Denominator::PairsLessOne),
        ),
        (
            "odd, in turn",
            plain(25, Layout::Interleaved, Denominator::Pairs),
        ),
    ];
    for (name, want) in cases {
        for length in [14, 600] {
            let at = positions(length);
            let rows = rounded(want.reference(&at));
            let (got, error) = identify(&at, rows.view(), single()).unwrap();
            assert_eq!(got, want, "{name}");
            assert!(error < 1e-4, "{name}: {error}");
        }
    }
}

#[test]
fn a_zero_row_is_that_of_padding() {
    let want = plain(24, Layout::Half, Denominator::PairsLessOne);
    let at = positions(40);
    let mut rows = want.reference(&at);
    rows.row_mut(1).fill(0.0);
    assert_eq!(identify(&at, rows.view(), single()).unwrap().0, want);
    rows.row_mut(5).fill(0.0);
    let miss = identify(&at, rows.view(), single()).unwrap_err();
    assert_eq!(miss.why, "several rows are zero");
}

#[test]
fn what_is_no_sinusoid_is_refused() {
    let good = plain(24, Layout::Half, Denominator::Pairs).reference(&positions(40));
    let change = |f: &dyn Fn(usize, usize, f64) -> f64| {
        Array2::from_shape_fn(good.dim(), |(p, c)| f(p, c, good[[p, c]]))
    };
    let cases = [
        (
            "one column negated",
            change(&|_, c, v| if c == 3 { -v } else { v }),
        ),
        ("all negated", change(&|_, _, v| -v)),
        ("one pair exchanged", {
            change(&|p, c, v| match c {
                2 => good[[p, 14]],
                14 => good[[p, 2]],
                _ => v,
            })
        }),
        ("one frequency 1 % up", {
            change(&|p, c, v| {
                let angle = p as f64 * 1.01 * 10000f64.powf(-5.0 / 12.0);
                match c {
                    5 => angle.sin(),
                    17 => angle.cos(),
                    _ => v,
                }
            })
        }),
        ("two frequencies exchanged", {
            change(&|p, c, v| match c {
                4 | 16 => good[[p, c + 1]],
                5 | 17 => good[[p, c - 1]],
                _ => v,
            })
        }),
        (
            "one row replaced",
            change(&|p, c, v| if p == 30 { good[[29, c]] } else { v }),
        ),
        ("rows exchanged", {
            change(&|p, c, v| match p {
                8 => good[[9, c]],
                9 => good[[8, c]],
                _ => v,
            })
        }),
        (
            "a column twice as large",
            change(&|_, c, v| if c == 9 { 2.0 * v } else { v }),
        ),
        ("half a position on", {
            let shifted: Vec<f64> = positions(40).iter().map(|p| p + 0.5).collect();
            plain(24, Layout::Half, Denominator::Pairs).reference(&shifted)
        }),
        ("noise", change(&|p, c, _| ((p * 31 + c * 17) as f64).sin())),
        ("constant", change(&|_, c, _| good[[3, c]])),
        (
            "not a number",
            change(&|p, c, v| if p + c == 20 { f64::NAN } else { v }),
        ),
    ];
    for (name, rows) in cases {
        let got = identify(&positions(40), rounded(rows).view(), single());
        assert!(got.is_err(), "{name}: {got:?}");
    }
}

#[test]
fn the_report_follows_what_changed() {
    let want = plain(24, Layout::Half, Denominator::Pairs);
    let at = positions(40);
    let of = |rows: Array2<f64>| identify(&at, rows.view(), single()).unwrap().0;
    let shifted: Vec<f64> = at.iter().map(|p| p + 1.0).collect();
    assert_eq!(of(want.reference(&shifted)).offset, 1);
    let steeper = Sinusoidal {
        base: 10100.0,
        ..want.clone()
    };
    assert_eq!(of(steeper.reference(&at)).base, 10100.0);
    let swapped = Sinusoidal {
        cosines_first: true,
        ..want
    };
    assert!(of(swapped.reference(&at)).cosines_first);
}

#[test]
fn images_are_read_in_either_order() {
    let image = |order, normalized, grid| Sinusoidal {
        image: Some(Image {
            grid,
            order,
            normalized,
            centered: false,
            prefix: 0,
        }),
        ..plain(32, Layout::Half, Denominator::Pairs)
    };
    let centered = |mut of: Sinusoidal| {
        of.image = of.image.map(|image| Image {
            centered: true,
            ..image
        });
        of
    };
    let cases = [
        centered(image(Order::RowsFirst, true, [4, 6])),
        centered(image(Order::ColumnsFirst, false, [5, 4])),
        image(Order::RowsFirst, false, [4, 6]),
        image(Order::ColumnsFirst, false, [5, 5]),
        Sinusoidal {
            offset: 1,
            layout: Layout::Interleaved,
            ..image(Order::RowsFirst, true, [8, 6])
        },
    ];
    for want in cases {
        let grid = want.image.unwrap().grid;
        let rows = rounded(want.reference_grid().unwrap());
        let (got, _) = identify_grid(rows.view(), grid, single()).unwrap();
        assert_eq!(got, want);
        // The other way round, the halves are of no one coordinate.
        if grid[0] != grid[1] {
            let turned = [grid[1], grid[0]];
            assert!(identify_grid(rows.view(), turned, single()).is_err());
        }
        let quarter = |n: usize| (0..n).map(|p| p as f64 + 0.25).collect::<Vec<_>>();
        let line = Sinusoidal {
            dim: want.dim / 2,
            image: None,
            ..want.clone()
        };
        let [y, x] = grid.map(|n| line.reference(&quarter(n)));
        let between = Array2::from_shape_fn((grid[0] * grid[1], want.dim), |(token, column)| {
            let place = [token / grid[1], token % grid[1]];
            let [first, second] = match want.image.map(|image| image.order) {
                Some(Order::RowsFirst) => [&y.row(place[0]), &x.row(place[1])],
                _ => [&x.row(place[1]), &y.row(place[0])],
            };
            match column.checked_sub(line.dim) {
                None => first[column],
                Some(column) => second[column],
            }
        });
        let misread = identify_grid(rounded(between).view(), grid, single());
        assert!(misread.is_err(), "a quarter of a patch on: {misread:?}");
        let mut bad = rows.clone();
        bad[[7, 3]] += 0.1;
        assert!(identify_grid(bad.view(), grid, single()).is_err());
    }
}

#[test]
fn sines_of_a_grid_are_told_from_learned_tables() {
    let code = |normalized, grid| Sinusoidal {
        image: Some(Image {
            grid,
            order: Order::RowsFirst,
            normalized,
            centered: false,
            prefix: 0,
        }),
        ..plain(32, Layout::Interleaved, Denominator::Pairs)
    };
    let random = |seed: usize| ((seed as f64 * 12.9898).sin() * 43_758.545).fract();
    for grid in [[4, 4], [4, 6], [7, 7], [5, 3]] {
        for normalized in [false, true] {
            let waves = code(normalized, grid).reference_grid().unwrap();
            let beside = Array2::from_shape_fn(waves.dim(), |(at, c)| waves[[at, c]] + random(c));
            let joined = Array2::from_shape_fn((waves.nrows(), 16), |(at, c)| {
                1.5 * waves[[at, c]] + waves[[at, 16 + c]]
            });
            for rows in [&waves, &beside, &joined] {
                assert!(has_waves(rounded(rows.clone()).view(), grid), "{grid:?}");
            }
            let mut bad = beside.clone();
            bad[[2, 5]] += 0.05;
            assert!(!has_waves(bad.view(), grid), "one number is another");
        }
        let [height, width] = grid;
        let count = height * width;
        let dense = Array2::from_shape_fn((count, 32), |(at, c)| random(at * 32 + c));
        // Rows and columns of their own, behind each other or as a sum.
        let halves = Array2::from_shape_fn((count, 32), |(at, c)| match c < 16 {
            true => random(100 * (at / width) + c),
            false => random(5_000 + 100 * (at % width) + c),
        });
        let sums = Array2::from_shape_fn((count, 32), |(at, c)| {
            random(100 * (at / width) + c) + random(5_000 + 100 * (at % width) + c)
        });
        for (name, rows) in [("dense", dense), ("halves", halves), ("sums", sums)] {
            assert!(!has_waves(rows.view(), grid), "{name} {grid:?}");
        }
    }
    let small = code(false, [3, 3]).reference_grid().unwrap();
    assert!(!has_waves(small.view(), [3, 3]), "too small to tell");
}
