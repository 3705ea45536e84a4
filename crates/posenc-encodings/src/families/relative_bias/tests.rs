//! Which rows, numbers and windows are biases by distance, and which are not.

use ndarray::Array3;

use super::*;

fn noise(seed: usize) -> f64 {
    (1.7 * seed as f64 + 0.3).sin() * 43.7 % 1.0
}

fn rows(k: i64, far: i64) -> BTreeMap<i64, i64> {
    (-far..=far).map(|d| (d, d.clamp(-k, k) + k)).collect()
}

fn clip(rows: &BTreeMap<i64, i64>, table: usize) -> Result<(Option<usize>, bool), String> {
    let found = RelativeBias::of_rows(rows, table, 2);
    let (found, clipped) = found.map_err(|miss| miss.why.to_string())?;
    Ok((found.max_distance, clipped))
}

#[test]
fn rows_determine_the_clip_in_either_direction() {
    assert_eq!(clip(&rows(8, 40), 17), Ok((Some(8), true)));
    let reversed = rows(8, 40).into_iter().map(|(d, r)| (-d, r)).collect();
    assert_eq!(clip(&reversed, 17), Ok((Some(8), true)));
    let open = (-13..=13).map(|d| (d, d + 63)).collect();
    assert_eq!(
        clip(&open, 127),
        Ok((Some(63), false)),
        "no clip: the table ends"
    );
    assert_eq!(
        clip(&open, 140),
        Ok((None, false)),
        "distance 0 off the middle"
    );
    let found = RelativeBias::of_rows(&rows(8, 40), 17, 2).unwrap().0;
    for (d, row) in rows(8, 40) {
        assert_eq!(found.row(d), usize::try_from(row).ok());
    }
}

#[test]
fn other_rows_are_refused_or_read_as_what_they_are() {
    assert_eq!(clip(&rows(7, 40), 17), Ok((Some(7), true)), "another clip");
    type Case = (&'static str, &'static str, fn(i64) -> i64);
    let neither = "rows neither follow the distance nor are clipped";
    let cases: [Case; 5] = [
        (
            "clipped elsewhere on one side",
            "distances clip at 8 before and 5 after the query",
            |d| d.clamp(-8, 5) + 8,
        ),
        (
            "moved by one before the clip",
            "distances clip at 9 before and 7 after the query",
            |d| (d + 1).clamp(-8, 8) + 8,
        ),
        (
            "every second row",
            "neighboring distances have no neighboring rows",
            |d| 2 * d.clamp(-8, 8) + 16,
        ),
        ("one row twice", neither, |d| {
            if d == -4 { 5 } else { d.clamp(-8, 8) + 8 }
        }),
        (
            "modulo",
            "neighboring distances have no neighboring rows",
            |d| d.rem_euclid(9),
        ),
    ];
    for (name, why, row) in cases {
        let rows = (-40..=40).map(|d| (d, row(d))).collect();
        assert_eq!(clip(&rows, 17), Err(why.to_owned()), "{name}");
    }
}

#[test]
fn a_clip_on_one_side_needs_the_other_to_be_unseen_or_to_end_the_table() {
    let seen = |far: [i64; 2], [low, high]: [i64; 2], sign: i64, table: usize| {
        let rows = (-far[0]..=far[1]).map(|d| (sign * d, d.clamp(low, high) + 8));
        clip(&rows.collect(), table)
    };
    for (sign, side, other) in [(1, "before", "after"), (-1, "after", "before")] {
        let refused = |k: i64, far: i64| {
            Err(format!(
                "distances clip at {k} {side} the query and not up to {far} {other} it"
            ))
        };
        let known = Ok((Some(8), true));
        assert_eq!(seen([40, 3], [-8, 8], sign, 17), known, "the table ends");
        assert_eq!(seen([40, 0], [-8, 8], sign, 30), known, "none is seen");
        let short = seen([40, 3], [-8, 8], sign, 30);
        assert_eq!(short, refused(8, 3), "seen too short");
        let just = seen([40, 8], [-8, 8], sign, 30);
        assert_eq!(just, refused(8, 8), "seen up to the clip");
        let inner = seen([40, 3], [-5, 8], sign, 17);
        assert_eq!(inner, refused(5, 3), "the table goes on");
        let on = seen([40, 30], [-8, 99], sign, 40);
        assert_eq!(on, refused(8, 30), "seen without a clip");
    }
}

#[test]
fn numbers_determine_the_clip_where_it_is_seen() {
    let labels = |far: i64, label: fn(i64) -> i64| {
        let at = (-far..=far).map(|d| (d, (label(d) + 100) as usize));
        RelativeBias::of_labels(&at.collect(), 2).map(|r| r.max_distance)
    };
    assert_eq!(labels(20, |d| d.clamp(-8, 8)), Ok(Some(8)));
    assert_eq!(labels(20, |d| d.clamp(-9, 9)), Ok(Some(9)));
    let unlike = Miss::new("distances are not clipped alike on both sides");
    let unlike = Err::<Option<usize>, _>(unlike);
    assert_eq!(labels(9, |d| d.clamp(-8, 8)), unlike, "too short a run");
    assert_eq!(labels(20, |d| d), unlike, "no clip");
    assert_eq!(labels(20, |d| d.clamp(-8, 6)), unlike, "two clips");
    assert_eq!(labels(20, |d| d.clamp(-8, 8) / 2), unlike, "steps");
}

fn window(rows: usize, columns: usize, prefix: usize, step: usize) -> Scores {
    let grid = Grid {
        prefix,
        columns,
        step,
    };
    let queries = prefix + rows.div_ceil(step) * columns.div_ceil(step);
    let keys = prefix + rows * columns;
    Scores {
        values: Array3::from_shape_fn((2, queries, keys), |(h, i, j)| {
            let [a, b, c] = grid.offset(i, j).map(|n| n + 50);
            noise(h + 2 * (a + 101 * (b + 101 * c)) as usize)
        }),
        origin: 0,
        tolerance: 1e-6,
        has_sink: false,
    }
}

#[test]
fn windows_are_read_with_class_rows_and_strides() {
    for (rows, columns, prefix, step) in [
        (4, 4, 0, 1),
        (2, 6, 0, 1),
        (6, 2, 0, 1),
        (4, 4, 1, 1),
        (3, 5, 2, 1),
        (7, 7, 0, 2),
        (4, 6, 0, 2),
    ] {
        let scores = window(rows, columns, prefix, step);
        let found = RelativeBias::of_window(&scores).map(|r| r.window);
        assert_eq!(
            found,
            Ok(Some([rows, columns])),
            "{rows} {columns} {prefix} {step}"
        );
    }
}

#[test]
fn what_no_window_explains_is_refused() {
    let change = |f: &dyn Fn(&mut Scores)| {
        let mut scores = window(4, 4, 1, 1);
        f(&mut scores);
        let why = RelativeBias::of_window(&scores).unwrap_err().why;
        why == "pairs of equal offset differ in every window"
    };
    assert!(change(&|s| s.values[[1, 5, 9]] *= 1.01), "one number");
    assert!(change(&|s| s.values[[0, 3, 3]] *= -1.0), "one sign");
    let swap = |s: &mut Scores| {
        for h in 0..2 {
            for j in 0..17 {
                s.values.swap([h, 4, j], [h, 5, j]);
            }
        }
    };
    assert!(change(&swap), "two queries trade places");
    let shift = |s: &mut Scores| {
        let old = s.values.clone();
        for ((h, i, j), v) in s.values.indexed_iter_mut() {
            *v = old[[h, i, (j + 1) % 17]];
        }
    };
    assert!(change(&shift), "keys moved by one");
    let random = Scores {
        values: Array3::from_shape_fn((2, 16, 16), |(h, i, j)| noise(h + 2 * (i + 16 * j))),
        origin: 0,
        tolerance: 1e-6,
        has_sink: false,
    };
    let why = RelativeBias::of_window(&random).unwrap_err().why;
    assert_eq!(why, "pairs of equal offset differ in every window");
}
